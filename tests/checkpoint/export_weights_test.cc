// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/export_weights.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <limits>
#include <memory>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "checkpoint/hugging_face_folder.h"
#include "fsdp/bf16.h"
#include "platform/xxh3.h"
#include "tests/checkpoint/faulty_files.h"
#include "tests/checkpoint/watched_files.h"
#include "tests/checkpoint/weights_folder.h"
#include "tests/platform/forwarding_files.h"
#include "tests/platform/refused_calls.h"

namespace tandem::checkpoint {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// A step of a checkpoint whose arrays lie in two files, as two ranks save them, and a folder beside it.
class ExportWeightsTest : public testing::Test {
 protected:
  // values: of each array, by name. with_digests: of each piece, as this build saves weights.
  SavedStep StepWith(const std::map<std::string, std::vector<float>>& values, bool with_digests = false) {
    Manifest manifest;
    manifest.info.step = 7;
    std::vector<MadeTensor> halves[2];
    for (const auto& [name, all] : values) {
      const size_t middle = all.size() / 3;
      const std::vector<float> parts[2] = {{all.begin(), all.begin() + static_cast<ptrdiff_t>(middle)},
                                           {all.begin() + static_cast<ptrdiff_t>(middle), all.end()}};
      ManifestArray array{.name = name, .dtype = "F32", .shape = {static_cast<int64_t>(all.size())}};
      int64_t begin = 0;
      for (int file = 0; file < 2; ++file) {
        const auto size = static_cast<int64_t>(parts[file].size());
        if (size > 0) {
          array.pieces.push_back({.file = file,
                                  .begin = begin,
                                  .elements = size,
                                  .digest = with_digests ? platform::Xxh3Of(FloatBytes(parts[file])) : ""});
          halves[file].push_back({name, "F32", {size}, FloatBytes(parts[file])});
        }
        begin += size;
      }
      manifest.arrays.push_back(array);
    }
    for (int file = 0; file < 2; ++file) {
      const std::string content = WeightsFileOf(halves[file]);
      const std::string name = absl::StrCat("rank-", file, ".safetensors");
      folder_.Write("step-7/" + name, content);
      manifest.files.push_back(
          {.name = name, .bytes = static_cast<int64_t>(content.size()), .digest = platform::Xxh3Of(content)});
    }
    folder_.Write("step-7/manifest.json", WriteManifest(manifest).text);
    folder_.Write("out/config.json", "{}");
    auto step = SavedStep::Open(platform::SystemFiles(), folder_.path() + "/step-7");
    EXPECT_TRUE(step.ok()) << step.status();
    return *std::move(step);
  }

  absl::StatusOr<ExportedFiles> Export(const SavedStep& step, const std::vector<ExportedTensor>& tensors,
                                       const ExportOptions& options,
                                       platform::Files& files = platform::SystemFiles()) {
    return ExportWeights(files, step, tensors, options, folder_.path() + "/out");
  }

  std::string ErrorOfExport(const SavedStep& step, const std::vector<ExportedTensor>& tensors) {
    return std::string(Export(step, tensors, {}).status().message());
  }

  // Three tensors in two files, each in the files of two ranks.
  SavedStep StepOfThree() {
    return StepWith({{"model.a", {1, 2, 3, 4}}, {"model.b", {5, 6}}, {"model.c", {7, 8, 9}}});
  }
  absl::StatusOr<ExportedFiles> ExportThree(const SavedStep& step, platform::Files& files) {
    return Export(step,
                  {{.name = "model.a", .shape = {4}},
                   {.name = "model.b", .shape = {2}},
                   {.name = "model.c", .shape = {3}}},
                  {.most_file_bytes = 14}, files);
  }

  void Damage(const std::string& name) {
    std::fstream file(folder_.path() + "/step-7/" + name, std::ios::in | std::ios::out);
    file.seekp(-1, std::ios::end);
    file.put('x');
  }

  bool OutLoads() { return ReadHuggingFaceFolder(platform::SystemFiles(), folder_.path() + "/out").ok(); }

  // The 16-bit words of a tensor of the folder that was written.
  std::vector<uint16_t> Words(const std::string& tensor) {
    const auto out = ReadHuggingFaceFolder(platform::SystemFiles(), folder_.path() + "/out");
    EXPECT_TRUE(out.ok()) << out.status();
    const StoredTensor& stored = out->tensors.at(tensor);
    std::ifstream file(folder_.path() + "/out/" + out->files[static_cast<size_t>(stored.file)].name,
                       std::ios::binary);
    file.seekg(stored.place.begin);
    std::vector<uint16_t> words(static_cast<size_t>(stored.place.end - stored.place.begin) / 2);
    file.read(reinterpret_cast<char*>(words.data()), stored.place.end - stored.place.begin);
    return words;
  }

  platform::TemporaryFolder folder_;
};

TEST_F(ExportWeightsTest, RoundsToNearestEven) {
  const float infinity = std::numeric_limits<float>::infinity();
  const SavedStep step =
      StepWith({{"model.a", {1, 1 + 0x1p-8F, 1 + 0x3p-8F, 1 + 0x1.2p-8F, -infinity, 0x1.FEp127F}}});
  EXPECT_TRUE(step.Verify().ok());
  ASSERT_TRUE(Export(step, {{.name = "model.a", .shape = {2, 3}}}, {}).ok());
  EXPECT_THAT(Words("model.a"), ElementsAre(0x3F80, 0x3F80, 0x3F82, 0x3F81, 0xFF80, 0x7F7F));
}

TEST_F(ExportWeightsTest, ArraysBecomePartsOfOneTensor) {
  const SavedStep step = StepWith({{"model.a", {1, 2}}, {"model.b", {3, 4}}, {"model.c", {5}}});
  const auto part = [](const char* name, int64_t begin) {
    return ExportedTensor{.name = name, .shape = {2}, .part_of = TensorSlice{"model.both", {2, 2}, begin}};
  };
  for (const int64_t most_bytes : {1000, 6}) {  // in one file, and each tensor in one
    const auto exported =
        Export(step, {part("model.b", 2), part("model.a", 0), {.name = "model.c", .shape = {1}}},
               {.most_file_bytes = most_bytes});
    ASSERT_TRUE(exported.ok());
    EXPECT_EQ(exported->bytes, 10);
    EXPECT_THAT(Words("model.both"), ElementsAre(0x3F80, 0x4000, 0x4040, 0x4080));
    EXPECT_THAT(Words("model.c"), ElementsAre(0x40A0));
    std::filesystem::remove_all(folder_.path() + "/out");
    folder_.Write("out/config.json", "{}");
  }
}

TEST_F(ExportWeightsTest, ValueBeyondBf16IsNamed) {
  const SavedStep step = StepWith({{"model.a", {1, 2, 3, 0x1.FFp127F}}});
  EXPECT_THAT(ErrorOfExport(step, {{.name = "model.a", .shape = {4}}}),
              HasSubstr("element 3 of model.a is finite in fp32 and not in bf16: export with --dtype fp32"));
  EXPECT_TRUE(Export(step, {{.name = "model.a", .shape = {4}}}, {.bf16 = false}).ok());
}

// Several threads read it, each in several parts.
TEST_F(ExportWeightsTest, ALargeTensorIsRoundedInItsOrder) {
  std::vector<float> values(400'001);
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<float>(i % 4096);
  }
  const SavedStep step = StepWith({{"model.a", values}});
  ASSERT_TRUE(Export(step, {{.name = "model.a", .shape = {400'001}}}, {}).ok());
  const std::vector<uint16_t> words = Words("model.a");
  ASSERT_EQ(words.size(), values.size());
  for (size_t i = 0; i < values.size(); ++i) {
    ASSERT_EQ(words[i], fsdp::RoundToBf16(values[i]).bits) << i;
  }
  values[250'000] = values[390'000] = 0x1.FFp127F;
  EXPECT_THAT(ErrorOfExport(StepWith({{"model.a", values}}), {{.name = "model.a", .shape = {400'001}}}),
              HasSubstr("element 250000 of model.a is finite in fp32"));
}

TEST_F(ExportWeightsTest, TensorsFillFilesInTheirOrder) {
  const SavedStep step = StepOfThree();
  const auto exported =
      Export(step,
             {{.name = "model.c", .shape = {3}},
              {.name = "model.a", .shape = {4}},
              {.name = "model.b", .shape = {2}, .keeps_fp32 = true},
              {.name = "model.zeros", .shape = {1}, .keeps_fp32 = true, .may_be_zeros = true}},
             {.most_file_bytes = 14});
  ASSERT_TRUE(exported.ok()) << exported.status();
  EXPECT_EQ(exported->bytes, 6 + 8 + 8 + 4);
  EXPECT_THAT(exported->names,
              ElementsAre("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors",
                          "model.safetensors.index.json"));
  const auto out = ReadHuggingFaceFolder(platform::SystemFiles(), folder_.path() + "/out");
  ASSERT_TRUE(out.ok()) << out.status();
  EXPECT_EQ(out->tensors.at("model.a").file, 0);
  EXPECT_EQ(out->tensors.at("model.b").file, 1);
  EXPECT_EQ(out->tensors.at("model.b").place.dtype, "F32");
  EXPECT_THAT(Words("model.a"), ElementsAre(0x3F80, 0x4000, 0x4040, 0x4080));
  EXPECT_THAT(Words("model.zeros"), ElementsAre(0, 0));
}

TEST_F(ExportWeightsTest, ArraysThatAreNotTheModelsAreNamed) {
  const SavedStep step = StepWith({{"model.a", {1, 2}}});
  EXPECT_THAT(ErrorOfExport(step, {{.name = "model.b", .shape = {2}}}),
              HasSubstr("the step has no array model.b"));
  EXPECT_THAT(ErrorOfExport(step, {{.name = "model.a", .shape = {3}}}),
              HasSubstr("array model.a is [2], and its model says [3]"));
}

TEST_F(ExportWeightsTest, EveryFileOfTheStepIsReadOnce) {
  const SavedStep step = StepWith({{"model.a", {1, 2, 3, 4}}, {"model.a/exp_avg", {5, 6, 7, 8}}});
  WatchedFiles files;
  ASSERT_TRUE(Export(step, {{.name = "model.a", .shape = {4}}}, {}, files).ok());
  std::map<std::string, int64_t> sizes;
  for (const ManifestFile& file : step.manifest().files) {
    sizes[absl::StrCat(step.path(), "/", file.name)] = file.bytes;
  }
  EXPECT_EQ(files.read(), sizes);
}

TEST_F(ExportWeightsTest, DigestedPiecesAreReadAlone) {
  const std::map<std::string, std::vector<float>> values = {
      {"model.a", {1, 2, 3, 4, 5, 6}}, {"model.a/exp_avg", {5, 6, 7, 8, 9, 10}}, {"model.b", {7, 8, 9}}};
  const std::vector<ExportedTensor> tensors = {{.name = "model.b", .shape = {3}},
                                               {.name = "model.a", .shape = {2, 3}},
                                               {.name = "model.none", .shape = {1}, .may_be_zeros = true}};
  const SavedStep step = StepWith(values, /*with_digests=*/true);
  WatchedFiles files;
  ASSERT_TRUE(Export(step, tensors, {}, files).ok());
  EXPECT_EQ(files.read(),
            (std::map<std::string, int64_t>{{step.path() + "/rank-0.safetensors", 4 * (2 + 1)},
                                            {step.path() + "/rank-1.safetensors", 4 * (4 + 2)}}));
  EXPECT_THAT(Words("model.a"), ElementsAre(0x3F80, 0x4000, 0x4040, 0x4080, 0x40A0, 0x40C0));
  EXPECT_THAT(Words("model.b"), ElementsAre(0x40E0, 0x4100, 0x4110));
}

TEST_F(ExportWeightsTest, DamagedPieceIsFound) {
  const SavedStep step = StepWith({{"model.a", {1, 2, 3}}, {"model.b", {4, 5, 6}}}, /*with_digests=*/true);
  Damage("rank-1.safetensors");  // in model.b
  EXPECT_EQ(ErrorOfExport(step, {{.name = "model.b", .shape = {3}}}),
            "rank-1.safetensors: the digest of model.b does not match the manifest");
  EXPECT_FALSE(OutLoads());
  EXPECT_THAT(std::string(step.Verify().message()),
              HasSubstr("rank-1.safetensors: its digest does not match the manifest"));
}

// What is exported of a file that is longer than a part, and whose arrays begin where no element of theirs
// can.
TEST_F(ExportWeightsTest, ElementsThatLieInTwoPartsAreWhole) {
  MadeTensor large = Counting("model.a", {platform::kFilePartBytes / 4 + 1000}, /*first=*/-3e6);
  const MadeTensor odd = {.name = "model.a/exp_avg", .dtype = "BF16", .shape = {1}, .bytes = HalfWords({7})};
  const std::string content = WeightsFileOf({odd, large});
  folder_.Write("step-7/rank-0.safetensors", content);
  Manifest manifest;
  manifest.info.step = 7;
  manifest.files.push_back({.name = "rank-0.safetensors",
                            .bytes = static_cast<int64_t>(content.size()),
                            .digest = platform::Xxh3Of(content)});
  manifest.arrays.push_back({.name = "model.a",
                             .dtype = "F32",
                             .shape = large.shape,
                             .pieces = {{.file = 0, .begin = 0, .elements = large.shape[0]}}});
  manifest.arrays.push_back({.name = "model.a",
                             .kind = kExpAvg,
                             .dtype = "BF16",
                             .shape = {1},
                             .pieces = {{.file = 0, .begin = 0, .elements = 1}}});
  folder_.Write("step-7/manifest.json", WriteManifest(manifest).text);
  folder_.Write("out/config.json", "{}");
  const auto step = SavedStep::Open(platform::SystemFiles(), folder_.path() + "/step-7");
  ASSERT_TRUE(step.ok()) << step.status();
  ASSERT_TRUE(Export(*step, {{.name = "model.a", .shape = large.shape}}, {.bf16 = false}).ok());
  std::ifstream file(folder_.path() + "/out/model.safetensors", std::ios::binary);
  EXPECT_TRUE(std::string(std::istreambuf_iterator<char>(file), {}) == WeightsFileOf({large}));
}

TEST_F(ExportWeightsTest, DamageAnywhereLeavesNothingLoadable) {
  const SavedStep step = StepWith({{"model.a", {1, 2, 3}}, {"model.a/exp_avg", {4, 5, 6}}});
  Damage("rank-1.safetensors");
  EXPECT_THAT(ErrorOfExport(step, {{.name = "model.a", .shape = {3}}}),
              HasSubstr("rank-1.safetensors: its digest does not match the manifest"));
  EXPECT_THAT(std::string(step.Verify().message()),
              HasSubstr("rank-1.safetensors: its digest does not match the manifest"));
  EXPECT_FALSE(OutLoads());
}

// A value may be wrong because its file is damaged: that is what is to be said then.
TEST_F(ExportWeightsTest, DamageIsReportedBeforeBadValues) {
  const SavedStep step = StepWith({{"model.a", {0x1.FFp127F, 2, 3}}});
  Damage("rank-1.safetensors");
  EXPECT_THAT(ErrorOfExport(step, {{.name = "model.a", .shape = {3}}}),
              HasSubstr("rank-1.safetensors: its digest does not match the manifest"));
}

// A misread header is found by a second look at it, or by the digests of the pieces.
TEST_F(ExportWeightsTest, ChangedHeaderCannotSwapPieces) {
  ReplacedFiles misread;  // the names of two arrays are swapped in what is read of a file alone
  misread.read_range = [](const std::string& path, int64_t begin, int64_t most_bytes) {
    absl::StatusOr<std::string> content = platform::SystemFiles().ReadRange(path, begin, most_bytes);
    if (content.ok()) {
      *content = absl::StrReplaceAll(*content, {{"model.a", "model.b"}, {"model.b", "model.a"}});
    }
    return content;
  };
  for (const bool with_digests : {false, true}) {
    StepWith({{"model.a", {1, 2, 3}}, {"model.b", {4, 5, 6}}}, with_digests);
    const auto step = SavedStep::Open(misread, folder_.path() + "/step-7");
    ASSERT_TRUE(step.ok()) << step.status();
    EXPECT_THAT(ErrorOfExport(*step, {{.name = "model.a", .shape = {3}}}),
                HasSubstr(with_digests ? ".safetensors: the digest of model.a does not match the manifest"
                                       : ".safetensors changed while it was read"));
    EXPECT_FALSE(OutLoads());
  }
}

// The machine's files; `write` is called before each write to one that was created, with its number, and
// writes nothing where that returns an error.
class CountedFiles final : public platform::ForwardingFiles {
 public:
  explicit CountedFiles(std::function<absl::Status(int)> write) : write_(std::move(write)) {}
  absl::StatusOr<std::unique_ptr<platform::OutputFile>> Create(const std::string& path,
                                                               int64_t bytes) override {
    auto file = ForwardingFiles::Create(path, bytes);
    return file.ok() ? std::make_unique<Output>(*this, *std::move(file)) : std::move(file);
  }

 private:
  class Output final : public platform::OutputFile {
   public:
    Output(CountedFiles& files, std::unique_ptr<platform::OutputFile> file)
        : files_(files), file_(std::move(file)) {}
    absl::Status Write(int64_t begin, std::string_view content) override {
      const absl::Status status = files_.write_(++files_.writes_);
      return status.ok() ? file_->Write(begin, content) : status;
    }
    absl::Status Finish() override { return file_->Finish(); }

   private:
    CountedFiles& files_;
    const std::unique_ptr<platform::OutputFile> file_;
  };

  const std::function<absl::Status(int)> write_;
  int writes_ = 0;  // by one thread at a time
};

TEST_F(ExportWeightsTest, FullDiskLeavesNothingLoadable) {
  const SavedStep step = StepOfThree();
  const absl::Status full = absl::ResourceExhaustedError("write model: No space left on device");
  for (int k = 1; k <= 7; ++k) {
    SCOPED_TRACE(k);
    folder_.Write("out/config.json", "{}");
    CountedFiles files([&](int write) { return write == k ? full : absl::OkStatus(); });
    EXPECT_EQ(ExportThree(step, files).status(), full);
    EXPECT_FALSE(OutLoads());
    std::filesystem::remove_all(folder_.path() + "/out");
  }
  folder_.Write("out/config.json", "{}");
  CountedFiles files([](int write) {
    EXPECT_LE(write, 7) << "the loop is over all writes: five of elements, two of headers";
    return absl::OkStatus();
  });
  ASSERT_TRUE(ExportThree(step, files).ok());
  EXPECT_TRUE(OutLoads());
}

TEST_F(ExportWeightsTest, KillLeavesNothingLoadable) {
  const SavedStep step = StepOfThree();
  for (int k = 1; k <= 7; ++k) {
    SCOPED_TRACE(k);
    EXPECT_FALSE(platform::InChild([&] {
      CountedFiles files([&](int write) {
        if (write == k) {
          raise(SIGKILL);
        }
        return absl::OkStatus();
      });
      return ExportThree(step, files).ok();
    }));
    EXPECT_FALSE(OutLoads());
    for (const char* name : {"model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"}) {
      std::ifstream file(folder_.path() + "/out/" + name, std::ios::binary);
      const std::string content(std::istreambuf_iterator<char>(file), {});
      EXPECT_EQ(ReadSafetensorsHeader(content, static_cast<int64_t>(content.size())).ok(),
                k == 7 && name[10] == '1')
          << name << ": the first is whole where its header is";
      std::filesystem::remove(absl::StrCat(folder_.path(), "/out/", name));
    }
  }
}

}  // namespace
}  // namespace tandem::checkpoint
