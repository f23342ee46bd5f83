// SPDX-License-Identifier: Apache-2.0
#include "model/parameter_and_flop_counts.h"

#include <gtest/gtest.h>

#include <cstdint>

#include "tests/model/test_decoders.h"

namespace tandem::model {
namespace {

using test::DeepseekV3;
using test::Llama3_8B;
using test::SmallHybrid;

// The technical report (arXiv:2412.19437, section 4.2) says 671 billion parameters, 37 billion of them
// active.
TEST(NumParametersTest, CountsDeepseekV3AndWhatATokenUses) {
  EXPECT_EQ(NumParameters(DeepseekV3()), 671'026'404'352);
  EXPECT_EQ(NumActiveParameters(DeepseekV3()) / 1'000'000'000, 37);
}

TEST(NumParametersTest, CountsMixtralAndWhatATokenUses) {
  DecoderConfig mixtral = Llama3_8B();
  mixtral.names = ParameterNames::kMixtral;
  mixtral.vocab_size = 32000;
  mixtral.moe = {.router = {.experts = 8, .top_k = 2, .normalize = true}, .intermediate_size = 14336};
  EXPECT_EQ(NumParameters(mixtral),
            46'702'792'704);  // Mixtral-8x7B's index of safetensors: twice as many bytes
  EXPECT_EQ(NumActiveParameters(mixtral), 12'879'925'248);
}

TEST(NumParametersTest, CountsLlama3) {
  EXPECT_EQ(NumParameters(Llama3_8B()), 8'030'261'248);
  DecoderConfig tied = Llama3_8B();
  tied.tie_word_embeddings = true;
  EXPECT_EQ(NumParameters(tied), 8'030'261'248 - int64_t{128256} * 4096);
}

TEST(FlopsPerTokenTest, OmitsTheInputEmbeddingAndAddsCausalAttention) {
  const double without_embedding = 8'030'261'248.0 - 128256.0 * 4096;
  EXPECT_DOUBLE_EQ(FlopsPerToken(Llama3_8B(), 8192), 6 * without_embedding + 6.0 * 32 * 4096 * 8192);
  // Tied: the one matrix multiplies in the head.
  DecoderConfig tied = Llama3_8B();
  tied.tie_word_embeddings = true;
  EXPECT_DOUBLE_EQ(FlopsPerToken(tied, 8192), FlopsPerToken(Llama3_8B(), 8192));
}

TEST(FlopsPerTokenTest, CountsWhatAWindowShows) {
  DecoderConfig config = Llama3_8B();
  config.sliding_window = 1024;
  config.window_layers = {0, 31};
  const double whole = 6.0 * 4096 * 8192;  // of a layer
  const double products = FlopsPerToken(Llama3_8B(), 8192) - 32 * whole;
  EXPECT_DOUBLE_EQ(FlopsPerToken(config, 8192),
                   products + 30 * whole + 2 * 6.0 * 4096 * 1024 * (2 - 1024.0 / 8192));
  EXPECT_DOUBLE_EQ(FlopsPerToken(config, 512), FlopsPerToken(Llama3_8B(), 512));
}

TEST(FlopsPerTokenTest, CountsValuesOfLatentAttentionAsTheyAre) {
  DecoderConfig config = Llama3_8B();
  config.num_key_value_heads = config.num_attention_heads;
  config.latent = {.kv_rank = 512, .content_head_dim = 64, .rotary_head_dim = 64, .value_head_dim = 96};
  const double products = FlopsPerToken(config, 0);
  EXPECT_DOUBLE_EQ(FlopsPerToken(config, 8192) - products, 3.0 * 32 * 32 * (128 + 96) * 8192);
}

TEST(FlopsPerTokenTest, LeavesOutTheWeightGradientsOfFrozenUnits) {
  DecoderConfig frozen = Llama3_8B();
  frozen.frozen_units = {"embedding", "layers.3", "head"};
  const double layer = 4096.0 * (2 * 4096 + 2 * 1024 + 3 * 14336 + 2);
  const double head = 4096.0 * (128256 + 1);
  EXPECT_DOUBLE_EQ(FlopsPerToken(frozen, 8192), FlopsPerToken(Llama3_8B(), 8192) - 2 * (layer + head));
  frozen.tie_word_embeddings = true;  // the matrix is the embedding's
  EXPECT_DOUBLE_EQ(FlopsPerToken(frozen, 8192), FlopsPerToken(Llama3_8B(), 8192) - 2 * (layer + head));
}

TEST(FlopsPerTokenTest, OnlyLayersThatAttendHaveScores) {
  DecoderConfig config = SmallHybrid(ParameterNames::kUsual);
  const double states = 18.0 * 4 * 5 * 3 * 2;  // of two mixers
  EXPECT_DOUBLE_EQ(FlopsPerToken(config, 100) - FlopsPerToken(config, 50), 6.0 * 50 * 2 * 4);
  config.pattern[0] = {LayerSymbol::kMamba};
  EXPECT_DOUBLE_EQ(FlopsPerToken(config, 100), FlopsPerToken(config, 50));
  const double all = static_cast<double>(NumParameters(config)) - 16 * 8;
  EXPECT_DOUBLE_EQ(FlopsPerToken(config, 100), 6 * all + states);
  config.pattern.push_back(
      {LayerSymbol::kMamba, LayerSymbol::kMamba});  // a depth, whose head multiplies again
  config.depths = {.number = 1, .numbers_letters = true};
  const double more = static_cast<double>(NumParameters(config)) - 16 * 8 + 16 * 8 * 0.99;
  EXPECT_DOUBLE_EQ(FlopsPerToken(config, 100), 6 * more + 2 * states);
}

}  // namespace
}  // namespace tandem::model
