// SPDX-License-Identifier: Apache-2.0
#include "model/decoder_nodes.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <c10/core/Device.h>

#include "model/node_kinds.h"
#include "ops/latent_heads.h"
#include "ops/rope.h"

namespace tandem::model {

namespace {

std::shared_ptr<const RotaryTables> MakeRotaryTables(const NodeContext& context) {
  const int64_t head_dim = context.shapes.head_dim;
  TORCH_CHECK(head_dim % 2 == 0, "rotary embedding needs an even head_dim, not ", head_dim);
  auto tables = std::make_shared<RotaryTables>();
  at::Tensor cosines =
      at::empty({context.shapes.length, head_dim / 2},
                MainType(context.types.unit.compute) == ComputeType::kFp64 ? at::kDouble : at::kFloat);
  at::Tensor sines = at::empty_like(cosines);
  if (context.shapes.latent.kv_rank > 0) {
    ops::LatentRotaryTables(context.shapes.latent_heads(), context.config.rope_theta, cosines, sines);
  } else {
    ops::RopeTables(context.config.rope_theta, context.config.rope_scaling, cosines, sines);
  }
  tables->cosines = std::make_shared<const at::Tensor>(context.ops.Constant(cosines));
  tables->sines = std::make_shared<const at::Tensor>(context.ops.Constant(sines));
  return tables;
}

}  // namespace

std::vector<std::unique_ptr<Node>> DecoderNodes(const DecoderConfig& config, BatchShape batch,
                                                const Precision& precision, const ops::Operations& ops,
                                                const NodeMakers& more) {
  const DeviceKind device = ops.device().is_cuda() ? DeviceKind::kGpu : DeviceKind::kCpu;
  const auto context_of = [&](const std::string& unit) {
    const NodeTypes types(precision, unit);
    return NodeContext{.config = config,
                       .shapes = {config, batch, types.unit.compute, device, types.repeats},
                       .types = types,
                       .unit = unit,
                       .ops = ops};
  };
  const std::shared_ptr<const RotaryTables> tables = MakeRotaryTables(context_of(""));
  NodeMakers make = {
      {&kEmbedding, MakeEmbeddingNode},
      {&kAttention, [&](const NodeContext& context) { return MakeAttentionNode(context, tables); }},
      {&kLatentAttention,
       [&](const NodeContext& context) { return MakeLatentAttentionNode(context, tables); }},
      {&kMlp, MakeMlpNode},
      {&kRoute, MakeRouteNode},
      {&kPermute, MakePermuteNode},
      {&kSizes, MakeSizesNode},
      {&kBalance, MakeBalanceNode},
      {&kDispatch, MakeDispatchNode},
      {&kExperts, MakeExpertsNode},
      {&kCombine, MakeCombineNode},
      {&kFinish, MakeFinishNode},
      {&kHead, MakeHeadNode},
  };
  make.insert(more.begin(), more.end());
  std::vector<std::unique_ptr<Node>> nodes;
  for (const DecoderNode& node : DecoderNodeList(config)) {
    nodes.push_back(make.at(node.kind)(context_of(node.unit)));
  }
  return nodes;
}

}  // namespace tandem::model
