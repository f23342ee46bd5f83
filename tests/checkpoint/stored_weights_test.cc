// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/stored_weights.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <mutex>

#include "absl/strings/str_cat.h"
#include "checkpoint/load_hugging_face.h"
#include "tests/checkpoint/elements_of.h"
#include "tests/checkpoint/watched_files.h"
#include "tests/checkpoint/weights_folder.h"
#include "tests/comm/run_thread_ranks.h"

namespace tandem::checkpoint {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pair;

class StoredWeightsTest : public testing::Test {
 protected:
  StoredWeightsTest() { files_.Write("config.json", "{}"); }

  HuggingFaceFolder FolderWith(const std::vector<MadeTensor>& tensors) {
    files_.Write("model.safetensors", WeightsFileOf(tensors));
    const auto folder = ReadHuggingFaceFolder(platform::SystemFiles(), files_.path());
    EXPECT_TRUE(folder.ok()) << folder.status();
    return *folder;
  }

  static WantedWeights Wants(const std::vector<WantedTensor>& tensors) {
    WantedWeights wanted;
    wanted.tensors = tensors;
    return wanted;
  }

  // What every one of `ranks` ranks loads of "model.a", in equal parts; sets problem_.
  std::vector<float> Load(const HuggingFaceFolder& folder, const StoredWeights& weights, int ranks,
                          int64_t elements) {
    std::vector<float> values(static_cast<size_t>(elements));
    comm::RunThreadRanks(ranks, [&](comm::Communicator& comm) {
      const int64_t begin = elements * comm.rank() / ranks;
      const int64_t size = elements * (comm.rank() + 1) / ranks - begin;
      const at::Tensor data = at::zeros({size});
      const std::string problem = LoadHuggingFace(
          platform::SystemFiles(), comm, folder, weights,
          {{.name = "model.a", .shape = {elements}, .begin = begin, .data = ElementsOf(data)}},
          [](const WorkProgress&) {});
      std::memcpy(values.data() + begin, data.const_data_ptr(), static_cast<size_t>(size) * sizeof(float));
      if (comm.rank() == 0) {
        problem_ = problem;
      }
    });
    return values;
  }

  platform::TemporaryFolder files_;
  std::string problem_;
};

TEST_F(StoredWeightsTest, AllThatDiffersIsNamedByKind) {
  const HuggingFaceFolder folder =
      FolderWith({Counting("model.a", {2, 3}),
                  Counting("model.x", {1}),
                  Counting("model.x_scale_inv", {1}),
                  {.name = "model.f", .dtype = "F64", .shape = {1}, .bytes = std::string(8, '\0')},
                  Counting("model.layers.0.rotary_emb.inv_freq", {1})});
  const StoredWeights weights = FindStoredWeights(folder, Wants({{.name = "model.a", .shape = {3, 2}},
                                                                 {.name = "model.b", .shape = {1}},
                                                                 {.name = "model.f", .shape = {1}}}));
  EXPECT_FALSE(weights.ok());
  EXPECT_THAT(weights.missing, ElementsAre("model.b"));
  EXPECT_THAT(weights.extra, ElementsAre("model.x", "model.x_scale_inv, which is of a quantised model"));
  EXPECT_THAT(weights.shapes, ElementsAre("model.a is [2, 3], not [3, 2]"));
  EXPECT_THAT(weights.dtypes, ElementsAre("model.f is F64"));
  EXPECT_EQ(
      ProblemText(weights),
      "1 tensor is missing (model.b); 2 tensors are not of this model (model.x, model.x_scale_inv, which "
      "is of a quantised model); 1 tensor has another shape (model.a is [2, 3], not [3, 2]); 1 tensor has "
      "a type that is not read (model.f is F64): cast the model to bf16, fp16 or fp32 first");
}

TEST_F(StoredWeightsTest, AtMostTwentyOfAKindAreNamed) {
  std::vector<WantedTensor> wanted;
  for (int i = 10; i < 35; ++i) {
    wanted.push_back({.name = absl::StrCat("model.", i), .shape = {1}});
  }
  const std::string text = ProblemText(FindStoredWeights(FolderWith({}), Wants(wanted)));
  EXPECT_THAT(text, HasSubstr("25 tensors are missing"));
  EXPECT_THAT(text, HasSubstr("model.29 and 5 more)"));
}

TEST_F(StoredWeightsTest, AMissingHeadSaysWhatToLookAt) {
  const HuggingFaceFolder folder = FolderWith({});
  EXPECT_THAT(ProblemText(FindStoredWeights(folder, Wants({{.name = "lm_head.weight", .shape = {1}}}))),
              HasSubstr("config.json must say tie_word_embeddings"));
}

TEST_F(StoredWeightsTest, LayersThatPredictFurtherTokensAreLeftOut) {
  WantedWeights wanted = Wants({{.name = "model.a", .shape = {1}}});
  const HuggingFaceFolder folder =
      FolderWith({Counting("model.a", {1}), Counting("model.layers.61.eh_proj.weight", {1})});
  EXPECT_FALSE(FindStoredWeights(folder, wanted).ok());
  wanted.first_layer_left_out = 61;
  EXPECT_TRUE(FindStoredWeights(folder, wanted).ok());
  EXPECT_THAT(FindStoredWeights(folder, wanted).left_out, ElementsAre("model.layers.61.eh_proj.weight"));
  wanted.first_layer_left_out = 62;
  EXPECT_FALSE(FindStoredWeights(folder, wanted).ok());
}

TEST_F(StoredWeightsTest, NamesOfThatPrefixAreLeftOut) {
  WantedWeights wanted = Wants({{.name = "model.a", .shape = {1}}});
  const HuggingFaceFolder folder = FolderWith({Counting("model.a", {1}), Counting("mtp.norm.weight", {1})});
  EXPECT_THAT(FindStoredWeights(folder, wanted).extra, ElementsAre("mtp.norm.weight"));
  wanted.prefix_left_out = "mtp.";
  EXPECT_TRUE(FindStoredWeights(folder, wanted).ok());
  EXPECT_THAT(FindStoredWeights(folder, wanted).left_out, ElementsAre("mtp.norm.weight"));
}

TEST_F(StoredWeightsTest, ConfigSaysHowManyLayersAreLeftOut) {
  WantedWeights wanted = Wants({});
  wanted.first_layer_left_out = 61;
  const std::vector<MadeTensor> tensors = {Counting("model.layers.61.eh_proj.weight", {1}),
                                           Counting("model.layers.62.eh_proj.weight", {1})};
  EXPECT_THAT(FindStoredWeights(FolderWith(tensors), wanted).extra,
              ElementsAre("model.layers.62.eh_proj.weight"))
      << "where config.json is silent it is 1";
  files_.Write("config.json", R"({"num_nextn_predict_layers": 2})");
  EXPECT_TRUE(FindStoredWeights(FolderWith(tensors), wanted).ok());
  files_.Write("config.json", R"({"num_nextn_predict_layers": 0})");
  EXPECT_EQ(FindStoredWeights(FolderWith(tensors), wanted).extra.size(), 2);
}

TEST_F(StoredWeightsTest, EveryTypeIsReadExactly) {
  const HuggingFaceFolder bf16 = FolderWith({{.name = "model.a",
                                              .dtype = "BF16",
                                              .shape = {4},
                                              .bytes = HalfWords({0x3F80, 0xC000, 0x0001, 0x7F7F})}});
  const WantedWeights wanted = Wants({{.name = "model.a", .shape = {4}}});
  for (const int ranks : {1, 3, 4}) {
    EXPECT_THAT(Load(bf16, FindStoredWeights(bf16, wanted), ranks, 4),
                ElementsAre(1, -2, 0x1p-133f, 0x1.FEp127f));
  }
  const HuggingFaceFolder fp16 = FolderWith({{.name = "model.a",
                                              .dtype = "F16",
                                              .shape = {4},
                                              .bytes = HalfWords({0x3C00, 0xC000, 0x0001, 0x7BFF})}});
  EXPECT_THAT(Load(fp16, FindStoredWeights(fp16, wanted), 2, 4), ElementsAre(1, -2, 0x1p-24f, 65504));
  const HuggingFaceFolder fp32 = FolderWith({Counting("model.a", {4}, 0.1F)});
  EXPECT_THAT(Load(fp32, FindStoredWeights(fp32, wanted), 2, 4), ElementsAre(0.1F, 1.1F, 2.1F, 3.1F));
  EXPECT_EQ(problem_, "");
}

TEST_F(StoredWeightsTest, ASliceOfAFusedTensorIsRead) {
  const HuggingFaceFolder folder = FolderWith({Counting("model.all", {3, 4, 2}, 0)});
  const WantedWeights wanted = Wants({{.name = "model.a",
                                       .shape = {2, 2},
                                       .instead = {{.name = "model.all", .shape = {3, 4, 2}, .begin = 12}}}});
  const StoredWeights weights = FindStoredWeights(folder, wanted);
  ASSERT_TRUE(weights.ok()) << ProblemText(weights);
  EXPECT_THAT(Load(folder, weights, 2, 4), ElementsAre(12, 13, 14, 15));
}

// Ranks that share the experts of a layer.
TEST_F(StoredWeightsTest, ARankReadsOnlyItsOwnExperts) {
  const HuggingFaceFolder folder =
      FolderWith({Counting("model.all", {2, 6}, 0), Counting("model.x", {8}, 0)});
  WantedWeights wanted = Wants({{.name = "model.x", .shape = {8}}});
  for (int64_t expert = 0; expert < 2; ++expert) {
    wanted.tensors.push_back({.name = absl::StrCat("model.", expert),
                              .shape = {6},
                              .instead = {{.name = "model.all", .shape = {2, 6}, .begin = 6 * expert}}});
  }
  const StoredWeights weights = FindStoredWeights(folder, wanted);
  ASSERT_TRUE(weights.ok()) << ProblemText(weights);
  comm::RunThreadRanks(2, [&](comm::Communicator& comm) {
    WatchedFiles files;
    const at::Tensor own = at::zeros({6});
    const at::Tensor half = at::zeros({4});
    EXPECT_EQ(LoadHuggingFace(
                  files, comm, folder, weights,
                  {{.name = absl::StrCat("model.", comm.rank()), .shape = {6}, .data = ElementsOf(own)},
                   {.name = "model.x", .shape = {8}, .begin = 4 * comm.rank(), .data = ElementsOf(half)}},
                  [](const WorkProgress&) {}),
              "");
    EXPECT_THAT(files.read(), ElementsAre(Pair(files_.path() + "/model.safetensors", (6 + 4) * 4)));
    EXPECT_EQ(own.const_data_ptr<float>()[0], 6.F * static_cast<float>(comm.rank()));
  });
}

TEST_F(StoredWeightsTest, WhatIsNotFiniteIsNamed) {
  const WantedWeights wanted = Wants({{.name = "model.a", .shape = {3}}});
  const HuggingFaceFolder fp16 =
      FolderWith({{.name = "model.a", .dtype = "F16", .shape = {3}, .bytes = HalfWords({0, 0, 0x7C00})}});
  Load(fp16, FindStoredWeights(fp16, wanted), 2, 3);
  EXPECT_THAT(problem_, HasSubstr("infinite or NaN are in model.a, of fp16: fp16 ends at 65504"));
  const HuggingFaceFolder fp32 =
      FolderWith({{.name = "model.a",
                   .dtype = "F32",
                   .shape = {3},
                   .bytes = FloatBytes({1, std::numeric_limits<float>::quiet_NaN(), 1})}});
  Load(fp32, FindStoredWeights(fp32, wanted), 3, 3);
  EXPECT_THAT(problem_, HasSubstr("infinite or NaN are in model.a"));
}

TEST_F(StoredWeightsTest, ATiedHeadMustHaveTheEmbeddingsBits) {
  WantedWeights wanted = Wants({{.name = "model.a", .shape = {8}}});
  wanted.copies.push_back({{.name = "lm_head.weight", .shape = {8}}, "model.a"});
  const HuggingFaceFolder equal = FolderWith({Counting("model.a", {8}), Counting("lm_head.weight", {8})});
  Load(equal, FindStoredWeights(equal, wanted), 3, 8);
  EXPECT_EQ(problem_, "");
  const HuggingFaceFolder other = FolderWith({Counting("model.a", {8}), Counting("lm_head.weight", {8}, 2)});
  Load(other, FindStoredWeights(other, wanted), 3, 8);
  EXPECT_THAT(problem_, HasSubstr("the bits differ of lm_head.weight and model.a"));
}

TEST_F(StoredWeightsTest, UnusedRouterBiasesMustBeZeros) {
  WantedWeights wanted = Wants({{.name = "model.a", .shape = {2}}});
  wanted.zeros.push_back({.name = "model.bias", .shape = {2}});
  const HuggingFaceFolder zeros =
      FolderWith({Counting("model.a", {2}),
                  {.name = "model.bias", .dtype = "F32", .shape = {2}, .bytes = FloatBytes({0, -0.F})}});
  Load(zeros, FindStoredWeights(zeros, wanted), 2, 2);
  EXPECT_EQ(problem_, "");
  const HuggingFaceFolder biased = FolderWith({Counting("model.a", {2}), Counting("model.bias", {2})});
  Load(biased, FindStoredWeights(biased, wanted), 2, 2);
  EXPECT_THAT(problem_, HasSubstr("router biases that are not 0 are in model.bias"));
}

}  // namespace
}  // namespace tandem::checkpoint
