// SPDX-License-Identifier: Apache-2.0
#include "model/decoder_outline.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "model/parameter_and_flop_counts.h"
#include "model/unit_parameters.h"
#include "tests/model/test_decoders.h"
#include "tests/model/unit_layouts.h"

namespace tandem::model {
namespace {

using test::SmallDecoder;
using testing::ElementsAre;
using testing::HasSubstr;

// Its second layer is sparse.
DecoderConfig SparseDecoder() {
  DecoderConfig config = SmallDecoder(false);
  config.qk_norm = QkNorm::kHead;
  config.moe = {.router = {.experts = 8, .top_k = 2}, .intermediate_size = 5, .decoder_sparse_step = 2};
  return config;
}

schedules::Outline OutlineOf(const DecoderConfig& config, BatchShape batch,
                             const Precision& precision = ComputeType::kFp32) {
  return DecoderOutline(config, batch, precision, DeviceKind::kCpu, test::LayOut(DecoderUnits(config), 32));
}

std::vector<std::string> NodesOf(const schedules::Outline& outline) {
  std::vector<std::string> names;
  for (const schedules::Node& node : outline.nodes) {
    names.push_back(node.name);
  }
  return names;
}

std::vector<std::string> NamesOf(const schedules::Outline& outline, const std::vector<int>& values) {
  std::vector<std::string> names;
  for (const int value : values) {
    names.push_back(outline.values[value].name);
  }
  return names;
}

// What every schedule relies on.
TEST(DecoderOutlineTest, EveryValueHasOneProducerBeforeItsReaders) {
  DecoderConfig in_chunks = SmallDecoder(true);
  in_chunks.most_logit_bytes = 1;
  for (const DecoderConfig& config : {SmallDecoder(false), SmallDecoder(true), SparseDecoder(), in_chunks}) {
    const schedules::Outline outline = OutlineOf(config, {.sequences = 3, .sequence_length = 5});
    std::set<int> written = {outline.batch};
    std::set<int> gradient_written;
    for (const schedules::Node& node : outline.nodes) {
      for (const int value : node.forward.reads) {
        EXPECT_TRUE(written.contains(value)) << node.name << " reads " << outline.values[value].name;
      }
      for (const int value : node.forward.writes) {
        EXPECT_TRUE(written.insert(value).second) << node.name << " writes " << outline.values[value].name;
      }
      gradient_written.insert(node.forward.gradient_writes.begin(), node.forward.gradient_writes.end());
    }
    for (const schedules::Node& node : outline.nodes) {
      for (const int value : node.backward_input.writes) {
        EXPECT_TRUE(written.insert(value).second) << node.name << " writes " << outline.values[value].name;
      }
      for (const int value : node.backward_weight.reads) {
        EXPECT_TRUE(written.contains(value)) << node.name << " reads " << outline.values[value].name;
      }
    }
    EXPECT_EQ(written.size(), outline.values.size());
    for (auto node = outline.nodes.rbegin(); node != outline.nodes.rend(); ++node) {
      for (const int value : node->backward_input.gradient_reads) {
        EXPECT_TRUE(gradient_written.contains(value)) << node->name;
        EXPECT_GT(outline.values[value].gradient_bytes.expected, 0);
      }
      gradient_written.insert(node->backward_input.gradient_writes.begin(),
                              node->backward_input.gradient_writes.end());
    }
    for (size_t value = 0; value < outline.values.size(); ++value) {
      EXPECT_EQ(outline.values[value].gradient_bytes.expected > 0, gradient_written.contains(value));
    }
  }
}

TEST(DecoderOutlineTest, NamesNodesUnitsAndValues) {
  const schedules::Outline outline = OutlineOf(SmallDecoder(false), {.sequences = 1, .sequence_length = 4});
  EXPECT_THAT(NodesOf(outline), ElementsAre("embedding", "layers.0.attention", "layers.0.mlp",
                                            "layers.1.attention", "layers.1.mlp", "head"));
  EXPECT_EQ(outline.nodes[3].layer, 1);
  EXPECT_EQ(outline.nodes[5].layer, -1);
  EXPECT_EQ(outline.values[outline.batch].name, "tokens");
  EXPECT_THAT(NamesOf(outline, outline.losses), ElementsAre("head.loss"));
  EXPECT_THAT(NamesOf(outline, outline.nodes[2].forward.reads), ElementsAre("layers.0.attention.hidden"));
  EXPECT_THAT(NamesOf(outline, outline.nodes[2].forward.writes),
              ElementsAre("layers.0.mlp.hidden", "layers.0.mlp.gate_up"));
  EXPECT_THAT(NamesOf(outline, outline.nodes[2].backward_input.gradient_writes),
              ElementsAre("layers.0.attention.hidden"));
}

// One value, so that it is loaded, kept and given up with the tokens.
TEST(DecoderOutlineTest, OnlyAttentionReadsPackedDocuments) {
  const BatchShape batch{.sequences = 2, .sequence_length = 4, .packs_documents = true};
  const schedules::Outline packed = OutlineOf(SmallDecoder(false), batch);
  EXPECT_EQ(packed.values[packed.batch].bytes.bound, 2 * (5 + 4) * 8);
  for (const schedules::Node& node : packed.nodes) {
    const bool reads = node.kind == "attention" || node.kind == "embedding" || node.kind == "head";
    EXPECT_EQ(std::count(node.forward.reads.begin(), node.forward.reads.end(), packed.batch), reads ? 1 : 0)
        << node.name;
    if (node.kind == "attention") {
      EXPECT_EQ(std::count(node.backward_input.reads.begin(), node.backward_input.reads.end(), packed.batch),
                1);
      EXPECT_EQ(
          std::count(node.backward_weight.reads.begin(), node.backward_weight.reads.end(), packed.batch), 0);
    }
  }
  const schedules::Outline stream = OutlineOf(SmallDecoder(false), {.sequences = 2, .sequence_length = 4});
  EXPECT_EQ(stream.values[stream.batch].bytes.bound, 2 * 5 * 8);
  for (const schedules::Node& node : stream.nodes) {
    if (node.kind == "attention") {
      EXPECT_EQ(std::count(node.forward.reads.begin(), node.forward.reads.end(), stream.batch), 0);
    }
  }
}

TEST(DecoderOutlineTest, UnitsHaveTheirLayersAndPartsRanges) {
  const schedules::Outline outline = OutlineOf(SmallDecoder(false), {.sequences = 1, .sequence_length = 4});
  ASSERT_EQ(outline.units.size(), 4u);
  std::set<int> layers;
  for (const schedules::Unit& unit : outline.units) {
    layers.insert(unit.layer);
    EXPECT_EQ(unit.group, schedules::UnitGroup::kDense);
    EXPECT_FALSE(unit.frozen);
  }
  EXPECT_EQ(layers.size(), 4u) << "units of different layers must not count as one";
  const schedules::Unit& unit = outline.units[2];
  EXPECT_EQ(unit.name, "layers.1");
  EXPECT_EQ(unit.layer, 1);
  // norm 24, q 24 x 24, k and v 12 x 24 (one block), o 24 x 24; norm 24, gate and up 40 x 24, down 24 x 40.
  const int64_t attention_end = 32 + (24 + 12 + 12) * 24 + 24 * 24;
  ASSERT_EQ(unit.parts.size(), 2u);
  EXPECT_EQ(unit.parts[0].name, "attention");
  EXPECT_EQ(unit.parts[0].begin, 0);
  EXPECT_EQ(unit.parts[0].end, attention_end);
  EXPECT_EQ(unit.parts[1].name, "mlp");
  EXPECT_EQ(unit.parts[1].begin, attention_end);
  EXPECT_EQ(unit.parts[1].end, attention_end + 32 + 3 * 40 * 24);
  EXPECT_EQ(unit.classes[0].elements, attention_end + 32 + 3 * 40 * 24);
  EXPECT_EQ(outline.nodes[3].forward.parameters[0], (schedules::UnitPart{.unit = 2, .part = 0}));
}

TEST(DecoderOutlineTest, ATiedHeadReadsAndTrainsTheEmbedding) {
  const schedules::Outline outline = OutlineOf(SmallDecoder(true), {.sequences = 1, .sequence_length = 4});
  const schedules::UnitPart head{.unit = 3, .part = 0};
  const schedules::UnitPart embedding{.unit = 0, .part = 0};
  EXPECT_THAT(outline.nodes.back().forward.parameters, ElementsAre(head, embedding));
  EXPECT_THAT(outline.nodes.back().backward_input.parameter_gradients, ElementsAre(head, embedding));
  EXPECT_THAT(outline.nodes.front().backward_input.parameter_gradients, ElementsAre(embedding));
  // The embedding's backward needs no weights, so a schedule does not gather them for it.
  EXPECT_TRUE(outline.nodes.front().backward_input.parameters.empty());
}

// Heads are behind all layers, and read hidden states by the nodes that make them (model/depths.h).
TEST(DecoderOutlineTest, DepthsReadEmbeddedRowsAndShareTheHead) {
  DecoderConfig config = SmallDecoder(false);
  config.depths.number = 2;
  const schedules::Outline outline = OutlineOf(config, {.sequences = 1, .sequence_length = 4});
  const std::vector<std::string> names = NodesOf(outline);
  EXPECT_THAT(std::vector<std::string>(names.begin() + 5, names.end()),
              ElementsAre("mtp.0.main_norm", "mtp.0.depth_input", "mtp.0.attention", "mtp.0.mlp",
                          "mtp.0.depth_norm", "mtp.1.depth_input", "mtp.1.attention", "mtp.1.mlp",
                          "mtp.1.depth_norm", "head", "mtp.0.depth_head", "mtp.1.depth_head"));
  const auto reads = [&](int node, int place) {
    return outline.values[outline.nodes[node].forward.reads[place]].name;
  };
  EXPECT_EQ(reads(6, 0), "mtp.0.main_norm.hidden");
  EXPECT_EQ(reads(6, 1), "embedding.hidden");
  EXPECT_EQ(reads(10, 0), "mtp.0.depth_norm.hidden");
  EXPECT_EQ(reads(10, 1), "embedding.hidden");
  EXPECT_EQ(reads(14, 0), "mtp.0.main_norm.hidden");
  EXPECT_EQ(reads(15, 0), "mtp.0.depth_norm.hidden");
  EXPECT_EQ(reads(16, 0), "mtp.1.depth_norm.hidden");
  for (const int head : {14, 15, 16}) {
    EXPECT_THAT(outline.nodes[head].backward_input.parameter_gradients,
                ElementsAre(schedules::UnitPart{.unit = 5, .part = 0}));
  }
  EXPECT_EQ(outline.losses.size(), 3u);
  EXPECT_EQ(outline.units[4].name, "mtp.1");
  EXPECT_EQ(outline.units[4].layer, 3);
}

TEST(DecoderOutlineTest, ADetachedDepthWritesNoModelGradient) {
  DecoderConfig config = SmallDecoder(true);
  config.depths = {.number = 1, .detached = true};
  const schedules::Outline outline = OutlineOf(config, {.sequences = 1, .sequence_length = 4});
  EXPECT_THAT(outline.nodes[6].backward_input.gradient_writes, ElementsAre());
  EXPECT_THAT(outline.nodes.back().backward_input.parameter_gradients, ElementsAre());
  EXPECT_THAT(outline.units.back().name, "mtp.0") << "no parameter of a tied head is its own";
}

// Its logits, of 17 words in fp32, take more than is allowed at once.
TEST(DecoderOutlineTest, AHeadInChunksWritesGradientsInForward) {
  DecoderConfig config = SmallDecoder(true);
  const BatchShape batch{.sequences = 2, .sequence_length = 8};
  const schedules::Outline whole = OutlineOf(config, batch);
  config.most_logit_bytes = 16 * 17 * 4 - 1;
  const schedules::Outline outline = OutlineOf(config, batch);
  const schedules::Node& head = outline.nodes.back();
  const schedules::UnitPart norm{.unit = 3, .part = 0};
  const schedules::UnitPart embedding{.unit = 0, .part = 0};
  EXPECT_THAT(NamesOf(outline, head.forward.writes), ElementsAre("head.loss"));
  EXPECT_THAT(NamesOf(outline, head.forward.gradient_writes), ElementsAre("layers.1.mlp.hidden"));
  EXPECT_THAT(head.forward.parameter_gradients, ElementsAre(norm, embedding));
  EXPECT_TRUE(head.forward.sums_parameter_gradients);
  EXPECT_FALSE(schedules::HasBackward(head));
  EXPECT_EQ(head.forward.flops, whole.nodes.back().forward.flops + whole.nodes.back().backward_input.flops);
  EXPECT_EQ(outline.units[0].parts.size(), whole.units[0].parts.size());

  config.most_logit_bytes = 16 * 17 * 2 - 1;
  // Without those of its scratch, which go each way in both chunks.
  const auto bytes = [&](ComputeType transport) {
    const schedules::Outline halves = OutlineOf(config, batch, Precision(ComputeType::kBf16, transport));
    const schedules::Access& access = halves.nodes.back().forward;
    return access.bytes_moved - 4 * static_cast<double>(access.scratch.expected);
  };
  EXPECT_EQ(bytes(ComputeType::kBf16), bytes(ComputeType::kFp32)) << "the sums of chunks are of fp32";
}

TEST(DecoderShapesTest, LogitsBeyondTheLimitComeInSimilarChunks) {
  DecoderConfig llama = SmallDecoder(false);
  llama.vocab_size = 128'256;
  const auto rows = [&](int64_t tokens, ComputeType type) {
    return DecoderShapes(llama, {.sequences = 1, .sequence_length = tokens}, type, DeviceKind::kGpu)
        .logit_rows;
  };
  EXPECT_EQ(rows(4096, ComputeType::kBf16), 4096) << "less than 1 GiB: all at once";
  EXPECT_EQ(rows(4096, ComputeType::kFp32), 2048);
  EXPECT_EQ(rows(16'384, ComputeType::kBf16), 4096);
  EXPECT_EQ(rows(16'384, ComputeType::kFp32), 2048);
  EXPECT_EQ(rows(4187, ComputeType::kBf16), 2112) << "33 * 64, and 2075";
  EXPECT_EQ(rows(131'072, ComputeType::kBf16), 4096);
  llama.most_logit_bytes = 1;
  EXPECT_EQ(rows(5, ComputeType::kFp32), 1) << "one token's are together";
}

// What a schedule that delays weight halves gains: the chain of the backward waits for half of it, and the
// other half needs no parameters, so that they can be given up.
TEST(DecoderOutlineTest, LayersHaveWeightHalvesAndNoneReadsParameters) {
  const schedules::Outline outline = OutlineOf(SmallDecoder(false), {.sequences = 2, .sequence_length = 8});
  for (const schedules::Node& node : outline.nodes) {
    SCOPED_TRACE(node.name);
    EXPECT_EQ(HasWeightHalf(node), node.layer >= 0);
    if (HasWeightHalf(node)) {
      EXPECT_TRUE(node.backward_input.parameter_gradients.empty());
      EXPECT_TRUE(node.backward_weight.parameters.empty());
      EXPECT_TRUE(node.backward_weight.gradient_writes.empty());
    }
  }
}

TEST(DecoderOutlineTest, AFrozenLayerHasNoWeightHalf) {
  DecoderConfig config = SmallDecoder(false);
  const schedules::Outline trained = OutlineOf(config, {.sequences = 2, .sequence_length = 8});
  config.frozen_units = {"layers.0"};
  const schedules::Outline outline = OutlineOf(config, {.sequences = 2, .sequence_length = 8});
  for (size_t i = 0; i < outline.nodes.size(); ++i) {
    const schedules::Node& node = outline.nodes[i];
    SCOPED_TRACE(node.name);
    EXPECT_EQ(HasWeightHalf(node), node.layer == 1);
    if (node.layer == 0) {
      EXPECT_TRUE(node.backward_input.parameter_gradients.empty());
      EXPECT_EQ(node.backward_input.flops, trained.nodes[i].backward_input.flops);
    }
  }
}

TEST(DecoderOutlineTest, SparseLayersAreFourNodesWithExpertUnits) {
  const schedules::Outline outline = OutlineOf(SparseDecoder(), {.sequences = 1, .sequence_length = 4});
  const std::vector<std::string> names = NodesOf(outline);
  EXPECT_THAT(
      std::vector<std::string>(names.begin() + 3, names.end()),
      ElementsAre("layers.1.attention", "layers.1.route", "layers.1.experts", "layers.1.finish", "head"));
  const schedules::Unit& dense = outline.units[2];
  const schedules::Unit& experts = outline.units[3];
  EXPECT_EQ(dense.group, schedules::UnitGroup::kDense);
  EXPECT_EQ(experts.name, "layers.1.experts");
  EXPECT_EQ(experts.group, schedules::UnitGroup::kExpert);
  EXPECT_EQ(experts.layer, dense.layer);
  EXPECT_EQ(experts.classes[0].elements, 8 * 3 * 5 * 24);
}

TEST(DecoderOutlineTest, NodesFlopsAreTheModelsPlusRecomputedScores) {
  DecoderConfig frozen = SparseDecoder();
  frozen.frozen_units = {"embedding", "layers.1.experts"};
  DecoderConfig in_chunks = SmallDecoder(true);
  in_chunks.most_logit_bytes = 1000;
  DecoderConfig frozen_in_chunks = in_chunks;
  frozen_in_chunks.frozen_units = {"embedding"};
  DecoderConfig windowed = SmallDecoder(false);
  windowed.qkv_bias = true;
  windowed.sliding_window = 100;
  windowed.window_layers = {1};
  DecoderConfig norms_after = SmallDecoder(false);
  norms_after.norms_after = true;
  norms_after.qk_norm = QkNorm::kWhole;
  DecoderConfig predicting = SmallDecoder(false);
  predicting.depths.number = 2;
  DecoderConfig detached = SmallDecoder(true);
  detached.depths = {.number = 1, .detached = true};
  for (const DecoderConfig& config : {SmallDecoder(false), SparseDecoder(), frozen, in_chunks,
                                      frozen_in_chunks, windowed, norms_after, predicting, detached}) {
    const schedules::Outline outline = OutlineOf(config, {.sequences = 2, .sequence_length = 512});
    double flops = 0;
    for (const schedules::Node& node : outline.nodes) {
      flops += node.forward.flops + node.backward_input.flops + node.backward_weight.flops;
    }
    const double tokens = 1024;
    double recomputed = 0;
    for (int layer = 0; layer < config.num_layers(); ++layer) {
      recomputed += tokens * 24 * (config.HasWindow(layer) ? AttendedLength(512, 100) : 512);
      // What a norm reads that comes after: the products with Wo and Wdown.
      recomputed += config.norms_after ? tokens * 2 * (24 * 24 + 40 * 24) : 0;
    }
    double norms = 0;  // and biases: counted as parameters, no product
    for (const UnitParameters& unit : DecoderUnits(config)) {
      for (const Parameter& parameter : unit.parameters) {
        norms += parameter.shape.size() == 1 ? tokens * 6 * static_cast<double>(parameter.shape[0]) : 0;
      }
    }
    EXPECT_NEAR(flops / (tokens * FlopsPerToken(config, 512) + recomputed - norms), 1, 1e-12);
  }
}

TEST(DecoderOutlineTest, TokenFlopsCountNoDropsAndNoPadding) {
  const auto flops = [](double factor, bool pads) {
    DecoderConfig config = SparseDecoder();
    config.moe.capacity = {.factor = factor, .pads = pads};
    return FlopsPerToken(config, 512);
  };
  double experts = 0;  // of all of a token's
  for (const UnitParameters& unit : DecoderUnits(SparseDecoder())) {
    for (const Parameter& parameter : unit.parameters) {
      experts += unit.experts ? 6.0 * static_cast<double>(NumElements(parameter.shape)) : 0;
    }
  }
  const ops::RouterConfig router = SparseDecoder().moe.router;
  experts *= static_cast<double>(router.top_k) / static_cast<double>(router.experts);
  EXPECT_NEAR(flops(0, false) - flops(0.25, false), 0.75 * experts, 1e-6 * experts);
  EXPECT_EQ(flops(0.25, true), flops(0.25, false)) << "padded";
  EXPECT_EQ(flops(1.5, true), flops(0, false)) << "more than there are";
}

TEST(DecoderOutlineTest, Fp64DoublesValuesButNotTokensAndLoss) {
  const BatchShape batch{.sequences = 2, .sequence_length = 8};
  const schedules::Outline single = OutlineOf(SmallDecoder(false), batch);
  const schedules::Outline twice = OutlineOf(SmallDecoder(false), batch, ComputeType::kFp64);
  ASSERT_EQ(single.losses.size(), 1u);
  for (size_t i = 0; i < single.values.size(); ++i) {
    const bool fixed = static_cast<int>(i) == single.batch || static_cast<int>(i) == single.losses[0];
    EXPECT_EQ(twice.values[i].bytes.bound, single.values[i].bytes.bound * (fixed ? 1 : 2));
  }
  EXPECT_EQ(single.values[single.batch].bytes.bound, 2 * 9 * 8);
  EXPECT_EQ(single.values[single.losses[0]].bytes.bound, 8);
  EXPECT_EQ(single.units[0].classes[0].precision.main, 4);
  EXPECT_EQ(twice.units[0].classes[0].precision.main, 8);
  EXPECT_EQ(twice.units[0].classes[0].precision.transport, 8);
}

TEST(DecoderOutlineTest, UnitsAndValuesHaveTheirTypesSizes) {
  const BatchShape batch{.sequences = 2, .sequence_length = 8};
  const DecoderConfig config = SmallDecoder(false);
  Precision precision(ComputeType::kBf16, ComputeType::kFp32);
  precision.units["head"] = Precision(ComputeType::kFp32).common;
  const schedules::Outline single = OutlineOf(config, batch);
  const schedules::Outline mixed =
      DecoderOutline(config, batch, precision, DeviceKind::kCpu, test::LayOut(DecoderUnits(config), 32));
  for (const schedules::Unit& unit : mixed.units) {
    EXPECT_EQ(unit.classes[0].precision.main, 4);
    EXPECT_EQ(unit.classes[0].precision.compute, unit.name == "head" ? 4 : 2) << unit.name;
    EXPECT_EQ(unit.classes[0].precision.transport, 4);
  }
  for (size_t i = 0; i < single.values.size(); ++i) {
    const std::string& name = single.values[i].name;
    const bool halved = !name.ends_with("tokens") && !name.ends_with("lse") && !name.ends_with("grad_norm") &&
                        !name.starts_with("head.");
    EXPECT_EQ(mixed.values[i].bytes.bound * (halved ? 2 : 1), single.values[i].bytes.bound) << name;
    EXPECT_EQ(mixed.values[i].gradient_bytes.bound * 2, single.values[i].gradient_bytes.bound) << name;
  }
  // The head's code gets x in fp32, which needs room.
  EXPECT_GT(mixed.nodes.back().forward.scratch.bound, single.nodes.back().forward.scratch.bound);
}

TEST(DecoderOutlineTest, RefusesLayoutsOfAnotherModel) {
  const DecoderConfig config = SmallDecoder(false);
  std::vector<UnitLayout> layouts = test::LayOut(DecoderUnits(config), 32);
  layouts[1].parameters[1].end -= 1;
  try {
    DecoderOutline(config, {.sequences = 1, .sequence_length = 4}, ComputeType::kFp32, DeviceKind::kCpu,
                   layouts);
    FAIL() << "accepted a parameter that lacks an element";
  } catch (const std::logic_error& error) {
    EXPECT_THAT(error.what(), HasSubstr("model.layers.0.self_attn.q_proj.weight"));
  }
  layouts.pop_back();
  EXPECT_THROW(DecoderOutline(config, {.sequences = 1, .sequence_length = 4}, ComputeType::kFp32,
                              DeviceKind::kCpu, layouts),
               std::logic_error);
}

}  // namespace
}  // namespace tandem::model
