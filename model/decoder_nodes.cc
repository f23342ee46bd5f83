// SPDX-License-Identifier: Apache-2.0
#include "model/decoder_nodes.h"

#include <stdexcept>

#include "absl/strings/str_cat.h"
#include "model/node_kinds.h"
#include "ops/rotary_tables.h"

namespace tandem::model {

namespace {

std::shared_ptr<const RotaryTables> MakeRotaryTables(const DecoderShapes& shapes,
                                                     const ops::Operations& ops) {
  const int64_t rotary = shapes.rotary;
  if (rotary == 0 || !shapes.rotates) {
    return nullptr;  // no layer attends, or none rotates
  }
  if (rotary % 2 != 0) {
    throw std::invalid_argument(
        absl::StrCat("rotary embedding turns an even number of a head's dims, not ", rotary));
  }
  const ComputeType type = MainType(shapes.compute);
  const auto bytes = static_cast<size_t>(shapes.length * rotary / 2 * ElementBytes(type));
  std::vector<char> memory(2 * bytes);
  const ops::Array cosines(memory.data(), ElementKindOf(type), DeviceKind::kCpu, shapes.length, rotary / 2);
  ops::Array sines = cosines;
  sines.begin = memory.data() + bytes;
  const DecoderConfig& config = shapes.config;
  if (config.latent.kv_rank > 0) {
    ops::LatentRotaryTables(shapes.latent_heads(), config.rope_theta, config.rope_scaling, cosines, sines);
  } else {
    ops::RopeTables(config.rope_theta, config.rope_scaling, cosines, sines);
  }
  return std::make_shared<RotaryTables>(RotaryTables{ops.MakeConstant(cosines), ops.MakeConstant(sines)});
}

}  // namespace

std::vector<std::unique_ptr<Node>> DecoderNodes(const DecoderConfig& config, BatchShape batch,
                                                const Precision& precision, const ops::Operations& ops,
                                                const NodeMakers& more) {
  const std::shared_ptr<const RotaryTables> tables =
      MakeRotaryTables({config, batch, precision.Of("").compute, ops.kind()}, ops);
  NodeMakers make = {
      {&kEmbedding, MakeEmbeddingNode},
      {&kAttention, MakeAttentionNode},
      {&kLatentAttention, MakeLatentAttentionNode},
      {&kMlp, MakeMlpNode},
      {&kMlpSquaredRelu, MakeMlpNode},
      {&kMamba, MakeMambaNode},
      {&kGatedDelta, MakeGatedDeltaNode},
      {&kRoute, MakeRouteNode},
      {&kBalance, MakeBalanceNode},
      {&kPermute, MakePermuteNode},
      {&kSizes, MakeSizesNode},
      {&kDispatch, MakeDispatchNode},
      {&kExperts, MakeExpertsNode},
      {&kCombine, MakeCombineNode},
      {&kFinish, MakeFinishNode},
      {&kHead, MakeHeadNode},
      {&kHeadOfNormed, MakeHeadNode},
      {&kDepthHead, MakeHeadNode},
      {&kMainNorm, MakeDepthNormNode},
      {&kDepthInput, MakeDepthInputNode},
      {&kDepthNorm, MakeDepthNormNode},
  };
  make.insert(more.begin(), more.end());
  std::vector<std::unique_ptr<Node>> nodes;
  for (const DecoderNode& node : DecoderNodeList(config)) {
    const NodeTypes types(precision, node.unit);
    nodes.push_back(make.at(node.kind)({.node = node,
                                        .shapes = ShapesOf(node, config, batch, types, ops.kind()),
                                        .types = types,
                                        .ops = ops,
                                        .tables = tables}));
  }
  return nodes;
}

}  // namespace tandem::model
