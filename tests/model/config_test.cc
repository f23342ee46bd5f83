// SPDX-License-Identifier: Apache-2.0
#include "model/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace tandem::model {
namespace {

using testing::ElementsAre;

DecoderConfig Llama3_8B() {
  return {.hidden_size = 4096,
          .intermediate_size = 14336,
          .num_hidden_layers = 32,
          .num_attention_heads = 32,
          .num_key_value_heads = 8,
          .head_dim = 128,
          .vocab_size = 128256,
          .rms_norm_eps = 1e-5,
          .rope_theta = 500000};
}

DecoderConfig Tiny(bool tied) {
  return {.hidden_size = 24,
          .intermediate_size = 40,
          .num_hidden_layers = 2,
          .num_attention_heads = 4,
          .num_key_value_heads = 2,
          .head_dim = 6,
          .vocab_size = 17,
          .tie_word_embeddings = tied};
}

std::string Describe(const Parameter& parameter) {
  std::string text = parameter.name + " [";
  for (size_t i = 0; i < parameter.shape.size(); ++i) {
    text += (i == 0 ? "" : ", ") + std::to_string(parameter.shape[i]);
  }
  return text + "] part " + std::to_string(parameter.part) + " block " + std::to_string(parameter.block) +
         (parameter.init == Init::kOnes ? " ones" : " normal");
}

std::vector<std::string> Describe(const UnitParameters& unit) {
  std::vector<std::string> lines;
  for (const Parameter& parameter : unit.parameters) {
    lines.push_back(Describe(parameter));
  }
  return lines;
}

TEST(DecoderUnitsTest, Llama3HasHuggingFacesNamesAndShapes) {
  const std::vector<UnitParameters> units = DecoderUnits(Llama3_8B());
  ASSERT_EQ(units.size(), 34u);
  EXPECT_EQ(units[0].name, "embedding");
  EXPECT_THAT(units[0].parts, ElementsAre("embedding"));
  EXPECT_THAT(Describe(units[0]),
              ElementsAre("model.embed_tokens.weight [128256, 4096] part 0 block -1 normal"));
  EXPECT_EQ(units[32].name, "layers.31");
  EXPECT_THAT(units[32].parts, ElementsAre("attention", "mlp"));
  EXPECT_THAT(Describe(units[32]),
              ElementsAre("model.layers.31.input_layernorm.weight [4096] part 0 block -1 ones",
                          "model.layers.31.self_attn.q_proj.weight [4096, 4096] part 0 block 0 normal",
                          "model.layers.31.self_attn.k_proj.weight [1024, 4096] part 0 block 0 normal",
                          "model.layers.31.self_attn.v_proj.weight [1024, 4096] part 0 block 0 normal",
                          "model.layers.31.self_attn.o_proj.weight [4096, 4096] part 0 block -1 normal",
                          "model.layers.31.post_attention_layernorm.weight [4096] part 1 block -1 ones",
                          "model.layers.31.mlp.gate_proj.weight [14336, 4096] part 1 block 1 normal",
                          "model.layers.31.mlp.up_proj.weight [14336, 4096] part 1 block 1 normal",
                          "model.layers.31.mlp.down_proj.weight [4096, 14336] part 1 block -1 normal"));
  EXPECT_EQ(units[33].name, "head");
  EXPECT_THAT(units[33].parts, ElementsAre("head"));
  EXPECT_THAT(Describe(units[33]), ElementsAre("model.norm.weight [4096] part 0 block -1 ones",
                                               "lm_head.weight [128256, 4096] part 0 block -1 normal"));
}

TEST(DecoderUnitsTest, ATiedHeadHasOnlyTheNorm) {
  EXPECT_THAT(Describe(DecoderUnits(Tiny(/*tied=*/true)).back()),
              ElementsAre("model.norm.weight [24] part 0 block -1 ones"));
}

TEST(NumParametersTest, CountsLlama3) {
  EXPECT_EQ(NumParameters(Llama3_8B()), 8'030'261'248);
  DecoderConfig tied = Llama3_8B();
  tied.tie_word_embeddings = true;
  EXPECT_EQ(NumParameters(tied), 8'030'261'248 - int64_t{128256} * 4096);
}

TEST(FlopsPerTokenTest, LeavesOutTheInputEmbeddingAndAddsCausalAttention) {
  const double without_embedding = 8'030'261'248.0 - 128256.0 * 4096;
  EXPECT_DOUBLE_EQ(FlopsPerToken(Llama3_8B(), 8192), 6 * without_embedding + 6.0 * 32 * 4096 * 8192);
  // Tied: the one matrix multiplies in the head.
  DecoderConfig tied = Llama3_8B();
  tied.tie_word_embeddings = true;
  EXPECT_DOUBLE_EQ(FlopsPerToken(tied, 8192), FlopsPerToken(Llama3_8B(), 8192));
}

}  // namespace
}  // namespace tandem::model
