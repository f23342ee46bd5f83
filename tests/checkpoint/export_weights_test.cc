// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/export_weights.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <limits>

#include "absl/strings/str_cat.h"
#include "checkpoint/hugging_face_folder.h"
#include "platform/xxh3.h"
#include "tests/checkpoint/weights_folder.h"

namespace tandem::checkpoint {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// A step of a checkpoint whose arrays lie in two files, as two ranks save them, and a folder beside it.
class ExportWeightsTest : public testing::Test {
 protected:
  // values: of each array, by name.
  SavedStep StepWith(const std::map<std::string, std::vector<float>>& values) {
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
          array.pieces.push_back({.file = file, .begin = begin, .elements = size});
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
                                       const ExportOptions& options) {
    return ExportWeights(platform::SystemFiles(), step, tensors, options, folder_.path() + "/out");
  }

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

TEST_F(ExportWeightsTest, Bf16IsTheNearestAndTiesGoToEven) {
  const float infinity = std::numeric_limits<float>::infinity();
  const SavedStep step =
      StepWith({{"model.a", {1, 1 + 0x1p-8F, 1 + 0x3p-8F, 1 + 0x1.2p-8F, -infinity, 0x1.FEp127F}}});
  EXPECT_TRUE(step.Verify().ok());
  ASSERT_TRUE(Export(step, {{.name = "model.a", .shape = {2, 3}}}, {}).ok());
  EXPECT_THAT(Words("model.a"), ElementsAre(0x3F80, 0x3F80, 0x3F82, 0x3F81, 0xFF80, 0x7F7F));
}

TEST_F(ExportWeightsTest, AValueThatBf16DoesNotHaveIsNamed) {
  const SavedStep step = StepWith({{"model.a", {1, 2, 3, 0x1.FFp127F}}});
  const auto exported = Export(step, {{.name = "model.a", .shape = {4}}}, {});
  EXPECT_THAT(std::string(exported.status().message()),
              HasSubstr("element 3 of model.a is finite in fp32 and not in bf16: export with --dtype fp32"));
  EXPECT_TRUE(Export(step, {{.name = "model.a", .shape = {4}}}, {.bf16 = false}).ok());
}

TEST_F(ExportWeightsTest, TensorsFillFilesInTheirOrder) {
  const SavedStep step = StepWith({{"model.a", {1, 2, 3, 4}}, {"model.b", {5, 6}}, {"model.c", {7, 8, 9}}});
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
  const auto error = [&](const ExportedTensor& tensor) {
    return std::string(Export(step, {tensor}, {}).status().message());
  };
  EXPECT_THAT(error({.name = "model.b", .shape = {2}}), HasSubstr("the step has no array model.b"));
  EXPECT_THAT(error({.name = "model.a", .shape = {3}}),
              HasSubstr("array model.a is [2], and its model says [3]"));
}

TEST_F(ExportWeightsTest, DamageIsFoundBeforeAnythingIsWritten) {
  const SavedStep step = StepWith({{"model.a", {1, 2, 3}}});
  std::fstream file(folder_.path() + "/step-7/rank-1.safetensors", std::ios::in | std::ios::out);
  file.seekp(-1, std::ios::end);
  file.put('x');
  file.close();
  EXPECT_THAT(std::string(step.Verify().message()),
              HasSubstr("rank-1.safetensors: its digest does not match the manifest"));
}

}  // namespace
}  // namespace tandem::checkpoint
