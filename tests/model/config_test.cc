#include "model/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>
#include <vector>

#include "model/decoder_shapes.h"

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

// What every schedule relies on.
TEST(FirstDecoderOutlineTest, EveryValueHasOneProducerBeforeItsReaders) {
  for (const bool tied : {false, true}) {
    const schedules_v1::Outline outline =
        DecoderOutline(Tiny(tied), {.sequences = 3, .sequence_length = 5}, ComputeType::kFp32, {1, 2, 3, 4});
    std::set<int> written = {outline.batch};
    std::set<int> gradient_written;
    for (const schedules_v1::Node& node : outline.nodes) {
      for (const int value : node.forward.reads) {
        EXPECT_TRUE(written.contains(value)) << node.name << " reads " << outline.values[value].name;
      }
      for (const int value : node.forward.writes) {
        EXPECT_TRUE(written.insert(value).second) << node.name << " writes " << outline.values[value].name;
      }
    }
    EXPECT_EQ(written.size(), outline.values.size());
    EXPECT_TRUE(written.contains(outline.loss));
    for (auto node = outline.nodes.rbegin(); node != outline.nodes.rend(); ++node) {
      for (const int value : node->backward.gradient_reads) {
        EXPECT_TRUE(gradient_written.contains(value)) << node->name;
        EXPECT_GT(outline.values[value].gradient_bytes.expected, 0);
      }
      gradient_written.insert(node->backward.gradient_writes.begin(), node->backward.gradient_writes.end());
    }
    for (size_t value = 0; value < outline.values.size(); ++value) {
      EXPECT_EQ(outline.values[value].gradient_bytes.expected > 0, gradient_written.contains(value));
    }
  }
}

TEST(FirstDecoderOutlineTest, NamesNodesAndUnits) {
  const schedules_v1::Outline outline = DecoderOutline(Tiny(false), {.sequences = 1, .sequence_length = 4},
                                                       ComputeType::kFp32, {10, 20, 30, 40});
  std::vector<std::string> names;
  for (const schedules_v1::Node& node : outline.nodes) {
    names.push_back(node.name);
  }
  EXPECT_THAT(names, ElementsAre("embedding", "layers.0.attention", "layers.0.mlp", "layers.1.attention",
                                 "layers.1.mlp", "head"));
  ASSERT_EQ(outline.units.size(), 4u);
  EXPECT_EQ(outline.units[2].name, "layers.1");
  EXPECT_THAT(outline.units[2].parts, ElementsAre("attention", "mlp"));
  EXPECT_EQ(outline.units[2].elements, 30);
  EXPECT_EQ(outline.nodes[3].layer, 1);
  EXPECT_EQ(outline.nodes[3].forward.parameters[0], (schedules_v1::UnitPart{.unit = 2, .part = 0}));
}

TEST(FirstDecoderOutlineTest, ATiedHeadReadsTheEmbeddingAndWritesItsGradient) {
  const schedules_v1::Outline outline =
      DecoderOutline(Tiny(true), {.sequences = 1, .sequence_length = 4}, ComputeType::kFp32, {1, 1, 1, 1});
  const schedules_v1::UnitPart head{.unit = 3, .part = 0};
  const schedules_v1::UnitPart embedding{.unit = 0, .part = 0};
  EXPECT_THAT(outline.nodes.back().forward.parameters, ElementsAre(head, embedding));
  EXPECT_THAT(outline.nodes.back().backward.parameter_gradients, ElementsAre(head, embedding));
  EXPECT_THAT(outline.nodes.front().backward.parameter_gradients, ElementsAre(embedding));
  // The embedding's backward needs no weights, so a schedule does not gather them for it.
  EXPECT_TRUE(outline.nodes.front().backward.parameters.empty());
}

TEST(FirstDecoderOutlineTest, FlopsOfAllNodesAreThoseOfTheModelPlusTheRecomputedScores) {
  const DecoderConfig config = Llama3_8B();
  const BatchShape batch{.sequences = 2, .sequence_length = 512};
  const schedules_v1::Outline outline =
      DecoderOutline(config, batch, ComputeType::kFp32, std::vector<int64_t>(34, 1));
  double flops = 0;
  for (const schedules_v1::Node& node : outline.nodes) {
    flops += node.forward.flops + node.backward.flops;
  }
  const double tokens = 1024;
  const double recomputed = tokens * 32 * 4096.0 * 512;
  const double norms = tokens * 6 * 65 * 4096.0;  // counted as parameters, no product
  EXPECT_NEAR(flops / (tokens * FlopsPerToken(config, 512) + recomputed - norms), 1, 1e-12);
}

TEST(FirstDecoderOutlineTest, Fp64ValuesAreTwiceAsLargeButTokensAndLossAreNot) {
  const BatchShape batch{.sequences = 2, .sequence_length = 8};
  const schedules_v1::Outline single = DecoderOutline(Tiny(false), batch, ComputeType::kFp32, {1, 1, 1, 1});
  const schedules_v1::Outline twice = DecoderOutline(Tiny(false), batch, ComputeType::kFp64, {1, 1, 1, 1});
  for (size_t i = 0; i < single.values.size(); ++i) {
    const bool fixed = static_cast<int>(i) == single.batch || static_cast<int>(i) == single.loss;
    EXPECT_EQ(twice.values[i].bytes.bound, single.values[i].bytes.bound * (fixed ? 1 : 2));
  }
  EXPECT_EQ(single.values[single.batch].bytes.bound, 2 * 9 * 8);
  EXPECT_EQ(single.values[single.loss].bytes.bound, 8);
}

}  // namespace
}  // namespace tandem::model
