// SPDX-License-Identifier: Apache-2.0
#include "model/decoder_nodes.h"

#include <stdexcept>

#include "absl/strings/str_cat.h"
#include "model/node_kinds.h"
#include "ops/rotary_tables.h"

namespace tandem::model {

namespace {

std::shared_ptr<const RotaryTables> MakeRotaryTables(const NodeContext& context) {
  const int64_t rotary = context.shapes.rotary;
  if (rotary == 0 || !context.config.rotates) {
    return nullptr;  // no layer attends, or none rotates
  }
  if (rotary % 2 != 0) {
    throw std::invalid_argument(
        absl::StrCat("rotary embedding turns an even number of a head's dims, not ", rotary));
  }
  const int64_t length = context.shapes.length;
  const ComputeType type = MainType(context.types.unit.compute);
  const auto bytes = static_cast<size_t>(length * rotary / 2 * ElementBytes(type));
  std::vector<char> memory(2 * bytes);
  const ops::Array cosines(memory.data(), ElementKindOf(type), DeviceKind::kCpu, length, rotary / 2);
  ops::Array sines = cosines;
  sines.begin = memory.data() + bytes;
  if (context.shapes.latent.kv_rank > 0) {
    ops::LatentRotaryTables(context.shapes.latent_heads(), context.config.rope_theta,
                            context.config.rope_scaling, cosines, sines);
  } else {
    ops::RopeTables(context.config.rope_theta, context.config.rope_scaling, cosines, sines);
  }
  return std::make_shared<RotaryTables>(
      RotaryTables{context.ops.MakeConstant(cosines), context.ops.MakeConstant(sines)});
}

}  // namespace

std::vector<std::unique_ptr<Node>> DecoderNodes(const DecoderConfig& config, BatchShape batch,
                                                const Precision& precision, const ops::Operations& ops,
                                                const NodeMakers& more) {
  const auto context_of = [&](const std::string& unit, int64_t depth) {
    const NodeTypes types(precision, unit);
    DecoderShapes shapes(config, batch, types.unit.compute, ops.kind(), types.repeats);
    shapes.depth = depth;
    return NodeContext{.config = config, .shapes = shapes, .types = types, .unit = unit, .ops = ops};
  };
  const std::shared_ptr<const RotaryTables> tables = MakeRotaryTables(context_of("", /*depth=*/0));
  NodeMakers make = {
      {&kEmbedding, MakeEmbeddingNode},
      {&kAttention, [&](const NodeContext& context) { return MakeAttentionNode(context, tables); }},
      {&kWindowAttention,
       [&](const NodeContext& context) { return MakeWindowAttentionNode(context, tables); }},
      {&kAttentionNormAfter,
       [&](const NodeContext& context) { return MakeAttentionNormAfterNode(context, tables); }},
      {&kLatentAttention,
       [&](const NodeContext& context) { return MakeLatentAttentionNode(context, tables); }},
      {&kMlp, MakeMlpNode},
      {&kMlpNormAfter, MakeMlpNormAfterNode},
      {&kMlpSquaredRelu, MakeMlpSquaredReluNode},
      {&kMamba, MakeMambaNode},
      {&kGatedDelta, MakeGatedDeltaNode},
      {&kRoute, MakeRouteNode},
      {&kPermute, MakePermuteNode},
      {&kSizes, MakeSizesNode},
      {&kBalance, MakeBalanceNode},
      {&kDispatch, MakeDispatchNode},
      {&kExperts, MakeExpertsNode},
      {&kCombine, MakeCombineNode},
      {&kFinish, MakeFinishNode},
      {&kHead, MakeHeadNode},
      {&kMainNorm, MakeMainNormNode},
      {&kDepthInput, MakeDepthInputNode},
      {&kDepthNorm, MakeDepthNormNode},
      {&kHeadOfNormed, MakeHeadOfNormedNode},
      {&kDepthHead, MakeDepthHeadNode},
  };
  make.insert(more.begin(), more.end());
  std::vector<std::unique_ptr<Node>> nodes;
  for (const DecoderNode& node : DecoderNodeList(config)) {
    nodes.push_back(make.at(node.kind)(context_of(node.unit, node.depth)));
  }
  return nodes;
}

}  // namespace tandem::model
