// SPDX-License-Identifier: Apache-2.0
#include "model/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/model/small_decoder.h"

namespace tandem::model {
namespace {

using test::SmallDecoder;
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

constexpr const char* kInits[] = {" normal", " ones", " zeros", " uniform", " time steps", " decay rates"};

std::string Describe(const Parameter& parameter) {
  std::string text = parameter.name + " [";
  for (size_t i = 0; i < parameter.shape.size(); ++i) {
    text += (i == 0 ? "" : ", ") + std::to_string(parameter.shape[i]);
  }
  return text + "] part " + std::to_string(parameter.part) + " block " + std::to_string(parameter.block) +
         kInits[static_cast<size_t>(parameter.init)];
}

std::vector<std::string> PartsOf(const UnitParameters& unit) {
  std::vector<std::string> names;
  for (const UnitParameters::Part& part : unit.parts) {
    names.push_back(part.name);
  }
  return names;
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
  EXPECT_THAT(PartsOf(units[0]), ElementsAre("embedding"));
  EXPECT_THAT(Describe(units[0]),
              ElementsAre("model.embed_tokens.weight [128256, 4096] part 0 block -1 normal"));
  EXPECT_EQ(units[32].name, "layers.31");
  EXPECT_THAT(PartsOf(units[32]), ElementsAre("attention", "mlp"));
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
  EXPECT_THAT(PartsOf(units[33]), ElementsAre("head"));
  EXPECT_THAT(Describe(units[33]), ElementsAre("model.norm.weight [4096] part 0 block -1 ones",
                                               "lm_head.weight [128256, 4096] part 0 block -1 normal"));
}

TEST(DecoderUnitsTest, ATiedHeadHasOnlyTheNorm) {
  EXPECT_THAT(Describe(DecoderUnits(SmallDecoder(/*tied=*/true)).back()),
              ElementsAre("model.norm.weight [24] part 0 block -1 ones"));
}

DecoderConfig TinySparse(ParameterNames names) {
  DecoderConfig config = SmallDecoder(false);
  config.names = names;
  config.moe = {.router = {.experts = 2, .top_k = 1}, .intermediate_size = 5, .decoder_sparse_step = 2};
  return config;
}

TEST(DecoderUnitsTest, ExpertsAreAUnitOfTheirOwnUnderMixtralsNames) {
  const std::vector<UnitParameters> units = DecoderUnits(TinySparse(ParameterNames::kMixtral));
  std::vector<std::string> names;
  for (const UnitParameters& unit : units) {
    names.push_back(unit.name);
    EXPECT_EQ(unit.experts, unit.name == "layers.1.experts");
  }
  EXPECT_THAT(names, ElementsAre("embedding", "layers.0", "layers.1", "layers.1.experts", "head"));
  EXPECT_THAT(PartsOf(units[1]), ElementsAre("attention", "mlp"));  // every second layer is sparse
  EXPECT_THAT(PartsOf(units[2]), ElementsAre("attention", "router"));
  EXPECT_EQ(units[3].layer, units[2].layer);
  const std::vector<std::string> dense = Describe(units[2]);
  EXPECT_THAT(std::vector<std::string>(dense.end() - 2, dense.end()),
              ElementsAre("model.layers.1.post_attention_layernorm.weight [24] part 1 block -1 ones",
                          "model.layers.1.block_sparse_moe.gate.weight [2, 24] part 1 block -1 normal"));
  const std::string experts = "model.layers.1.block_sparse_moe.experts.";
  EXPECT_THAT(Describe(units[3]), ElementsAre(experts + "0.w1.weight [5, 24] part 0 block 0 normal",
                                              experts + "0.w3.weight [5, 24] part 0 block 0 normal",
                                              experts + "1.w1.weight [5, 24] part 0 block 0 normal",
                                              experts + "1.w3.weight [5, 24] part 0 block 0 normal",
                                              experts + "0.w2.weight [24, 5] part 0 block 1 normal",
                                              experts + "1.w2.weight [24, 5] part 0 block 1 normal"));
}

TEST(DecoderUnitsTest, Qwen3MoeNormsHeadsAndHasItsOwnNames) {
  DecoderConfig config = TinySparse(ParameterNames::kUsual);
  config.qk_norm = QkNorm::kHead;
  const std::vector<UnitParameters> units = DecoderUnits(config);
  const std::string layer = "model.layers.1.";
  EXPECT_THAT(Describe(units[2]),
              testing::IsSupersetOf({layer + "self_attn.q_norm.weight [6] part 0 block -1 ones",
                                     layer + "self_attn.k_norm.weight [6] part 0 block -1 ones",
                                     layer + "mlp.gate.weight [2, 24] part 1 block -1 normal"}));
  EXPECT_THAT(
      Describe(units[3]),
      testing::IsSupersetOf({layer + "mlp.experts.1.gate_proj.weight [5, 24] part 0 block 0 normal",
                             layer + "mlp.experts.1.up_proj.weight [5, 24] part 0 block 0 normal",
                             layer + "mlp.experts.1.down_proj.weight [24, 5] part 0 block 1 normal"}));
}

TEST(DecoderUnitsTest, BiasesOfQueriesKeysAndValuesBeginAsZeros) {
  DecoderConfig config = SmallDecoder(false);
  config.qkv_bias = true;
  const std::string attention = "model.layers.0.self_attn.";
  EXPECT_THAT(Describe(DecoderUnits(config)[1]),
              testing::IsSupersetOf({attention + "q_proj.bias [24] part 0 block -1 zeros",
                                     attention + "k_proj.bias [12] part 0 block -1 zeros",
                                     attention + "v_proj.bias [12] part 0 block -1 zeros"}));
  config.output_bias = true;
  EXPECT_THAT(Describe(DecoderUnits(config)[1]),
              testing::Contains(attention + "o_proj.bias [24] part 0 block -1 zeros"));
}

TEST(DecoderUnitsTest, NormsThatComeAfterHaveOlmo2sNames) {
  DecoderConfig config = SmallDecoder(false);
  config.names = ParameterNames::kOlmo2;
  config.norms_after = true;
  config.qk_norm = QkNorm::kWhole;
  const std::vector<std::string> layer = Describe(DecoderUnits(config)[1]);
  EXPECT_THAT(layer, testing::IsSupersetOf(
                         {"model.layers.0.post_attention_layernorm.weight [24] part 0 block -1 ones",
                          "model.layers.0.self_attn.q_norm.weight [24] part 0 block -1 ones",
                          "model.layers.0.self_attn.k_norm.weight [12] part 0 block -1 ones",
                          "model.layers.0.post_feedforward_layernorm.weight [24] part 1 block -1 ones"}));
  EXPECT_EQ(layer.size(), 11u);
}

// deepseek-ai/DeepSeek-V3, without its layer that predicts further tokens.
DecoderConfig DeepseekV3() {
  return {.hidden_size = 7168,
          .intermediate_size = 18432,
          .num_hidden_layers = 61,
          .num_attention_heads = 128,
          .num_key_value_heads = 128,
          .head_dim = 192,
          .vocab_size = 129280,
          .moe = {.router = {.experts = 256, .top_k = 8, .groups = 8, .groups_per_token = 4},
                  .intermediate_size = 2048,
                  .first_k_dense_replace = 3,
                  .shared_intermediate_size = 2048},
          .latent = {.query_rank = 1536,
                     .kv_rank = 512,
                     .content_head_dim = 128,
                     .rotary_head_dim = 64,
                     .value_head_dim = 128}};
}

TEST(DecoderUnitsTest, DeepseekV3HasHuggingFacesNamesAndShapes) {
  const std::vector<UnitParameters> units = DecoderUnits(DeepseekV3());
  EXPECT_EQ(units[3].name, "layers.2");
  EXPECT_THAT(PartsOf(units[3]), ElementsAre("attention", "mlp"));
  EXPECT_EQ(units[4].name, "layers.3");
  EXPECT_THAT(PartsOf(units[4]), ElementsAre("attention", "router"));
  const std::string layer = "model.layers.3.";
  EXPECT_THAT(Describe(units[4]),
              ElementsAre(layer + "input_layernorm.weight [7168] part 0 block -1 ones",
                          layer + "self_attn.q_a_proj.weight [1536, 7168] part 0 block -1 normal",
                          layer + "self_attn.q_a_layernorm.weight [1536] part 0 block -1 ones",
                          layer + "self_attn.q_b_proj.weight [24576, 1536] part 0 block -1 normal",
                          layer + "self_attn.kv_a_proj_with_mqa.weight [576, 7168] part 0 block -1 normal",
                          layer + "self_attn.kv_a_layernorm.weight [512] part 0 block -1 ones",
                          layer + "self_attn.kv_b_proj.weight [32768, 512] part 0 block -1 normal",
                          layer + "self_attn.o_proj.weight [7168, 16384] part 0 block -1 normal",
                          layer + "post_attention_layernorm.weight [7168] part 1 block -1 ones",
                          layer + "mlp.gate.weight [256, 7168] part 1 block -1 normal",
                          layer + "mlp.shared_experts.gate_proj.weight [2048, 7168] part 1 block 0 normal",
                          layer + "mlp.shared_experts.up_proj.weight [2048, 7168] part 1 block 0 normal",
                          layer + "mlp.shared_experts.down_proj.weight [7168, 2048] part 1 block -1 normal"));
  EXPECT_EQ(units[5].name, "layers.3.experts");
  EXPECT_EQ(units[5].parameters[0].name, layer + "mlp.experts.0.gate_proj.weight");
}

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

TEST(FlopsPerTokenTest, LeavesOutTheInputEmbeddingAndAddsCausalAttention) {
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

// [M*] and M, with names of most models or those of mixers.
DecoderConfig SmallHybrid(ParameterNames names) {
  DecoderConfig config{
      .names = names,
      .hidden_size = 8,
      .intermediate_size = 12,
      .num_hidden_layers = 2,
      .num_attention_heads = 2,
      .num_key_value_heads = 1,
      .head_dim = 4,
      .vocab_size = 16,
      .mamba = {.heads = 4, .head_dim = 5, .state = 3, .groups = 2, .conv_width = 4, .chunk = 8}};
  config.pattern = {{LayerSymbol::kMamba, LayerSymbol::kAttention}, {LayerSymbol::kMamba}};
  return config;
}

TEST(PatternTest, ALayerIsOneUnitWhateverIsInIt) {
  const std::vector<UnitParameters> units = DecoderUnits(SmallHybrid(ParameterNames::kUsual));
  ASSERT_EQ(units.size(), 4u);
  const auto named = [](const char* name) { return testing::Field(&UnitParameters::Part::name, name); };
  EXPECT_THAT(units[1].parts, ElementsAre(named("mamba"), named("attention"), named("scan")));
  EXPECT_THAT(units[2].parts, ElementsAre(named("mamba"), named("scan")));
  EXPECT_THAT(Describe(units[2]),
              ElementsAre("model.layers.1.mamba_layernorm.weight [8] part 0 block -1 ones",
                          "model.layers.1.mamba.in_proj.weight [56, 8] part 0 block -1 normal",
                          "model.layers.1.mamba.conv1d.weight [32, 1, 4] part 0 block -1 uniform",
                          "model.layers.1.mamba.conv1d.bias [32] part 0 block -1 uniform",
                          "model.layers.1.mamba.norm.weight [20] part 0 block -1 ones",
                          "model.layers.1.mamba.out_proj.weight [8, 20] part 0 block -1 normal",
                          "model.layers.1.mamba.dt_bias [4] part 1 block -1 time steps",
                          "model.layers.1.mamba.A_log [4] part 1 block -1 decay rates",
                          "model.layers.1.mamba.D [4] part 1 block -1 ones"));
}

TEST(PatternTest, ModelsOfMixersHaveTheirOwnNames) {
  const std::vector<UnitParameters> units = DecoderUnits(SmallHybrid(ParameterNames::kMixer));
  EXPECT_EQ(units[0].parameters[0].name, "backbone.embeddings.weight");
  EXPECT_EQ(units[2].parameters[0].name, "backbone.layers.1.norm.weight");
  EXPECT_EQ(units[2].parameters[7].name, "backbone.layers.1.mixer.A_log");
  EXPECT_EQ(units[3].parameters[0].name, "backbone.norm_f.weight");
}

TEST(PatternTest, GraniteAndBambaHaveTheirOwnNames) {
  const auto names = [](ParameterNames of, std::vector<LayerSymbol> symbols) {
    DecoderConfig config = SmallHybrid(of);
    config.pattern = {{LayerSymbol::kMamba, LayerSymbol::kExperts}, std::move(symbols)};
    config.moe = {
        .router = {.experts = 1, .top_k = 1}, .intermediate_size = 4, .shared_intermediate_size = 4};
    std::vector<std::string> found;
    for (const UnitParameters& unit : DecoderUnits(config)) {
      for (const Parameter& parameter : unit.parameters) {
        found.push_back(parameter.name);
      }
    }
    return found;
  };
  EXPECT_THAT(names(ParameterNames::kGranite, {LayerSymbol::kAttention, LayerSymbol::kMlp}),
              testing::IsSupersetOf(
                  {"model.layers.0.input_layernorm.weight", "model.layers.0.mamba.in_proj.weight",
                   "model.layers.0.post_attention_layernorm.weight",
                   "model.layers.0.block_sparse_moe.router.layer.weight",
                   "model.layers.0.block_sparse_moe.experts.0.gate_proj.weight",
                   "model.layers.0.block_sparse_moe.experts.0.down_proj.weight",
                   "model.layers.0.shared_mlp.gate_proj.weight", "model.layers.0.shared_mlp.up_proj.weight",
                   "model.layers.0.shared_mlp.output_linear.weight", "model.layers.1.self_attn.q_proj.weight",
                   "model.layers.1.shared_mlp.gate_proj.weight",
                   "model.layers.1.shared_mlp.output_linear.weight", "model.norm.weight", "lm_head.weight"}));
  EXPECT_THAT(names(ParameterNames::kBamba, {LayerSymbol::kAttention, LayerSymbol::kMlp}),
              testing::IsSupersetOf(
                  {"model.layers.0.input_layernorm.weight", "model.layers.0.pre_ff_layernorm.weight",
                   "model.layers.1.pre_ff_layernorm.weight", "model.layers.1.feed_forward.gate_proj.weight",
                   "model.layers.1.feed_forward.down_proj.weight", "model.final_layernorm.weight"}));
}

TEST(PatternTest, ADepthIsOneUnitWithNormsAndAProjectionOfItsOwn) {
  DecoderConfig config = SmallHybrid(ParameterNames::kUsual);
  config.pattern.push_back({LayerSymbol::kMlp, LayerSymbol::kMlp});
  config.depths = {.number = 1, .numbers_letters = true};
  const std::vector<UnitParameters> units = DecoderUnits(config);
  EXPECT_EQ(units[3].name, "mtp.0");
  EXPECT_THAT(PartsOf(units[3]), ElementsAre("main_norm", "depth_input", "0.mlp", "1.mlp", "depth_norm"));
  EXPECT_THAT(Describe(units[3]),
              ElementsAre("model.norm.weight [8] part 0 block -1 ones",
                          "model.layers.2.enorm.weight [8] part 1 block -1 ones",
                          "model.layers.2.hnorm.weight [8] part 1 block -1 ones",
                          "model.layers.2.eh_proj.weight [8, 16] part 1 block -1 normal",
                          "model.layers.2.layers.0.post_attention_layernorm.weight [8] part 2 block -1 ones",
                          "model.layers.2.layers.0.mlp.gate_proj.weight [12, 8] part 2 block 0 normal",
                          "model.layers.2.layers.0.mlp.up_proj.weight [12, 8] part 2 block 0 normal",
                          "model.layers.2.layers.0.mlp.down_proj.weight [8, 12] part 2 block -1 normal",
                          "model.layers.2.layers.1.post_attention_layernorm.weight [8] part 3 block -1 ones",
                          "model.layers.2.layers.1.mlp.gate_proj.weight [12, 8] part 3 block 1 normal",
                          "model.layers.2.layers.1.mlp.up_proj.weight [12, 8] part 3 block 1 normal",
                          "model.layers.2.layers.1.mlp.down_proj.weight [8, 12] part 3 block -1 normal",
                          "model.layers.2.shared_head.norm.weight [8] part 4 block -1 ones"));
  EXPECT_THAT(Describe(units[4]), ElementsAre("lm_head.weight [16, 8] part 0 block -1 normal"));
}

TEST(PatternTest, OnlyLayersThatAttendHaveFlopsOfScores) {
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
