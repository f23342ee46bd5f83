// SPDX-License-Identifier: Apache-2.0
#include "model/unit_parameters.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/model/test_decoders.h"

namespace tandem::model {
namespace {

using test::DeepseekV3;
using test::Llama3_8B;
using test::SmallDecoder;
using test::SmallHybrid;
using testing::ElementsAre;

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

TEST(DecoderUnitsTest, ExpertsAreTheirOwnUnitUnderMixtralsNames) {
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

TEST(DecoderUnitsTest, Qwen3MoeNormsHeadsAndHasOwnNames) {
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

TEST(DecoderUnitsTest, QueryKeyAndValueBiasesBeginAsZeros) {
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

TEST(PatternTest, ALayerOfAnyLettersIsOneUnit) {
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

TEST(PatternTest, ADepthIsOneUnitWithOwnNorms) {
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

}  // namespace
}  // namespace tandem::model
