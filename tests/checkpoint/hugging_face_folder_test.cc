// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/hugging_face_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <iostream>
#include <random>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "tests/checkpoint/weights_folder.h"

namespace tandem::checkpoint {
namespace {

using testing::HasSubstr;
using testing::Not;

class HuggingFaceFolderTest : public testing::Test {
 protected:
  HuggingFaceFolderTest() { folder_.Write("config.json", "{}"); }

  absl::StatusOr<HuggingFaceFolder> Read() {
    return ReadHuggingFaceFolder(platform::SystemFiles(), folder_.path());
  }
  // What is read has these tensors.
  void ExpectTensors(const std::vector<std::string>& names) {
    const auto read = Read();
    ASSERT_TRUE(read.ok()) << read.status();
    for (const std::string& name : names) {
      EXPECT_TRUE(read->tensors.contains(name)) << name;
    }
  }
  std::string Problem() { return std::string(Read().status().message()); }

  // Two files and their index.
  void WriteShards() {
    folder_.Write("model-00001-of-00002.safetensors", WeightsFileOf({Counting("model.a", {2, 3})}));
    folder_.Write("model-00002-of-00002.safetensors",
                  WeightsFileOf({Counting("model.b", {4}), Counting("lm_head.weight", {2})}));
    folder_.Write("model.safetensors.index.json",
                  IndexOf({{"model.a", "model-00001-of-00002.safetensors"},
                           {"model.b", "model-00002-of-00002.safetensors"},
                           {"lm_head.weight", "model-00002-of-00002.safetensors"}}));
  }

  platform::TemporaryFolder folder_;
};

TEST_F(HuggingFaceFolderTest, OneFileIsRead) {
  folder_.Write("model.safetensors", WeightsFileOf({Counting("model.a", {2, 3}), Counting("model.b", {4})}));
  const auto read = Read();
  ASSERT_TRUE(read.ok()) << read.status();
  ASSERT_EQ(read->tensors.size(), 2u);
  EXPECT_EQ(read->tensors.at("model.a").place.shape, (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(read->files[0].name, "model.safetensors");
}

TEST_F(HuggingFaceFolderTest, ShardsAreReadByTheirIndex) {
  WriteShards();
  const auto read = Read();
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->files.size(), 2u);
  EXPECT_EQ(read->tensors.at("model.a").file, 0);
  EXPECT_EQ(read->tensors.at("lm_head.weight").file, 1);
}

TEST_F(HuggingFaceFolderTest, PredictingLayersAreTheConfigs) {
  folder_.Write("model.safetensors", WeightsFileOf({Counting("model.a", {2, 3})}));
  const auto layers_of = [&](const std::string& config) {
    folder_.Write("config.json", config);
    const auto read = Read();
    EXPECT_TRUE(read.ok()) << read.status();
    return read.ok() ? read->predicting_layers : -1;
  };
  EXPECT_EQ(layers_of("{}"), 1);
  EXPECT_EQ(layers_of(R"({"num_nextn_predict_layers": null})"), 1);
  EXPECT_EQ(layers_of(R"({"num_nextn_predict_layers": 3})"), 3);
  EXPECT_EQ(layers_of(R"({"num_mtp_layers": 0})"), 0);
  EXPECT_EQ(layers_of(R"({"time_step_limit": [0.0, Infinity], "num_nextn_predict_layers": 3})"), 3);
}

TEST_F(HuggingFaceFolderTest, UnclearPredictingLayersAreNamed) {
  folder_.Write("model.safetensors", WeightsFileOf({Counting("model.a", {2, 3})}));
  for (const char* const layers : {"-1", "1.5", "\"3\"", "true", "[]", "1000001"}) {
    folder_.Write("config.json", absl::StrCat("{\"num_nextn_predict_layers\": ", layers, "}"));
    EXPECT_EQ(Problem(), "config.json: num_nextn_predict_layers is not a number of layers") << layers;
  }
  folder_.Write("config.json", "[]");
  EXPECT_EQ(Problem(), "config.json: it is not a JSON object");
  folder_.Write("config.json", "{");
  EXPECT_THAT(Problem(), HasSubstr("config.json: [json.exception.parse_error"));
}

TEST_F(HuggingFaceFolderTest, ModelsWithoutAHeadGetThePrefix) {
  folder_.Write("model.safetensors",
                WeightsFileOf({Counting("layers.0.a", {2}), Counting("norm.weight", {2})}));
  ExpectTensors({"model.layers.0.a", "model.norm.weight"});
}

TEST_F(HuggingFaceFolderTest, ModelsOfMixersKeepTheirPrefix) {
  folder_.Write("model.safetensors", WeightsFileOf({Counting("backbone.layers.0.norm.weight", {2}),
                                                    Counting("lm_head.weight", {2})}));
  ExpectTensors({"backbone.layers.0.norm.weight", "lm_head.weight"});
}

TEST_F(HuggingFaceFolderTest, ModelsOfMixersGetTheirPrefix) {
  for (const std::string prefix : {"", "model."}) {  // without a head, and as transformers 5 holds them
    folder_.Write("model.safetensors",
                  WeightsFileOf({Counting(prefix + "layers.0.mixer.D", {2}),
                                 Counting(prefix + "norm_f.weight", {2}), Counting("lm_head.weight", {2})}));
    ExpectTensors({"backbone.layers.0.mixer.D", "backbone.norm_f.weight", "lm_head.weight"});
  }
}

TEST_F(HuggingFaceFolderTest, MixersTensorHasOnlyOneName) {
  folder_.Write("model.safetensors",
                WeightsFileOf({Counting("model.layers.0.mixer.D", {2}), Counting("layers.0.mixer.D", {2})}));
  EXPECT_EQ(Problem(), "tensor layers.0.mixer.D is there with \"model.\" before its name, and without");
}

TEST_F(HuggingFaceFolderTest, OtherWeightsOfEqualShapesHaveAnotherDigest) {
  folder_.Write("model.safetensors", WeightsFileOf({Counting("model.a", {100'000}, 1)}));
  const std::string first = Read()->digest;
  folder_.Write("model.safetensors", WeightsFileOf({Counting("model.a", {100'000}, 2)}));
  EXPECT_NE(Read()->digest, first);
  folder_.Write("model.safetensors", WeightsFileOf({Counting("model.a", {100'000}, 1)}));
  EXPECT_EQ(Read()->digest, first);
  folder_.Write("config.json", "{ }");
  EXPECT_NE(Read()->digest, first);
}

TEST_F(HuggingFaceFolderTest, LinksOfTheHubsCacheAreFollowed) {
  const platform::TemporaryFolder blobs;
  blobs.Write("abc", WeightsFileOf({Counting("model.a", {2})}));
  std::filesystem::create_symlink(blobs.path() + "/abc", folder_.path() + "/model.safetensors");
  EXPECT_TRUE(Read().ok()) << Problem();
  std::filesystem::remove(blobs.path() + "/abc");
  EXPECT_THAT(Problem(), HasSubstr("model.safetensors is a link to " + blobs.path() +
                                   "/abc, which does not exist: download the model again"));
}

TEST_F(HuggingFaceFolderTest, AGitLfsPointerIsNamed) {
  WriteShards();
  folder_.Write("model-00002-of-00002.safetensors",
                "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 5\n");
  EXPECT_THAT(Problem(), HasSubstr("model-00002-of-00002.safetensors is a Git LFS pointer"));
  EXPECT_THAT(Problem(), HasSubstr("git lfs pull"));
  EXPECT_THAT(Problem(), Not(HasSubstr("tensor model.b")));
}

TEST_F(HuggingFaceFolderTest, UnfinishedDownloadIsNamed) {
  WriteShards();
  folder_.Write("model-00003.safetensors.incomplete", "x");
  folder_.Write(".cache/huggingface/download/abc.incomplete", "x");
  EXPECT_THAT(Problem(), HasSubstr("model-00003.safetensors.incomplete is an unfinished download"));
  EXPECT_THAT(Problem(), HasSubstr(".cache/huggingface/download/abc.incomplete is an unfinished download"));
}

TEST_F(HuggingFaceFolderTest, AShorterFileIsNamed) {
  WriteShards();
  const std::string path = folder_.path() + "/model-00001-of-00002.safetensors";
  std::filesystem::resize_file(path, std::filesystem::file_size(path) - 1);
  EXPECT_THAT(Problem(), HasSubstr("model-00001-of-00002.safetensors: not a safetensors file: tensor "
                                   "'model.a' ends at 24, the buffer at 23; is the download complete?"));
}

TEST_F(HuggingFaceFolderTest, AllProblemsAreNamedAtOnce) {
  WriteShards();
  std::filesystem::remove(folder_.path() + "/model-00001-of-00002.safetensors");
  folder_.Write("model-00009-of-00009.safetensors", "x");
  std::filesystem::remove(folder_.path() + "/config.json");
  const std::string problem = Problem();
  EXPECT_THAT(problem, HasSubstr("config.json is missing"));
  EXPECT_THAT(problem, HasSubstr("model-00001-of-00002.safetensors is missing: is the download complete?"));
  EXPECT_THAT(problem, HasSubstr("model-00009-of-00009.safetensors is not in model.safetensors.index.json"));
}

TEST_F(HuggingFaceFolderTest, IndexAndFilesMustAgree) {
  WriteShards();
  folder_.Write("model.safetensors.index.json", IndexOf({{"model.a", "model-00002-of-00002.safetensors"},
                                                         {"model.b", "model-00002-of-00002.safetensors"},
                                                         {"model.c", "model-00001-of-00002.safetensors"}}));
  const std::string problem = Problem();
  EXPECT_THAT(problem, HasSubstr("tensor model.a is in model-00001-of-00002.safetensors, and in "
                                 "model-00002-of-00002.safetensors by model.safetensors.index.json"));
  EXPECT_THAT(problem, HasSubstr("tensor model.c is not in model-00001-of-00002.safetensors"));
  EXPECT_THAT(problem, HasSubstr("tensor lm_head.weight of model-00002-of-00002.safetensors is not in"));
}

// Many published ones are wrong.
TEST_F(HuggingFaceFolderTest, IndexsTotalSizeIsIgnored) {
  WriteShards();
  const std::string index = *platform::SystemFiles().Read(folder_.path() + "/model.safetensors.index.json");
  for (const char* const size : {"-1", "0", "4611686018427387904", "1e300", "\"all\"", "null", "[]"}) {
    folder_.Write(
        "model.safetensors.index.json",
        absl::StrReplaceAll(index, {{"\"total_size\": 1", absl::StrCat("\"total_size\": ", size)}}));
    const auto read = Read();
    ASSERT_TRUE(read.ok()) << size << ": " << read.status();
    EXPECT_EQ(read->tensors.size(), 3u);
  }
}

TEST_F(HuggingFaceFolderTest, FilesOutsideTheFolderAreRefused) {
  WriteShards();
  folder_.Write("model.safetensors.index.json",
                IndexOf({{"model.a", "../model-00001-of-00002.safetensors"}}));
  EXPECT_THAT(Problem(), HasSubstr("which is not the name of a file in the folder"));
}

TEST_F(HuggingFaceFolderTest, OtherFormatsAreNamedWithTheWayOut) {
  EXPECT_THAT(Problem(), HasSubstr("there is neither model.safetensors nor model.safetensors.index.json"));
  folder_.Write("pytorch_model.bin", "x");
  EXPECT_THAT(Problem(), HasSubstr("not safetensors (pytorch_model.bin): load the model in transformers"));
  folder_.Write("model-00001-of-00002.safetensors", "x");
  EXPECT_THAT(Problem(), HasSubstr("model.safetensors.index.json is missing"));
}

TEST_F(HuggingFaceFolderTest, RandomDamageIsReadOrNamed) {
  WriteShards();
  const uint64_t seed = std::random_device{}();
  std::cout << "seed " << seed << "\n";
  std::mt19937_64 random(seed);
  const std::string index = IndexOf({{"model.a", "model-00001-of-00002.safetensors"},
                                     {"model.b", "model-00002-of-00002.safetensors"},
                                     {"lm_head.weight", "model-00002-of-00002.safetensors"}});
  for (int repeat = 0; repeat < 20'000; ++repeat) {
    std::string text = index;
    for (int damage = static_cast<int>(random() % 4); damage >= 0; --damage) {
      const size_t at = random() % text.size();
      if (random() % 2 == 0) {
        text[at] = static_cast<char>(random());
      } else {
        text.insert(at, random() % 2 == 0 ? "[" : "\"");
      }
    }
    std::filesystem::remove(folder_.path() + "/model.safetensors.index.json");
    folder_.Write("model.safetensors.index.json", text);
    const auto read = Read();
    ASSERT_TRUE(read.ok() || absl::IsInvalidArgument(read.status())) << read.status();
    ASSERT_EQ(read.status().message().find('\n'), std::string::npos);
  }
}

}  // namespace
}  // namespace tandem::checkpoint
