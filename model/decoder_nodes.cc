// SPDX-License-Identifier: Apache-2.0
#include "model/decoder_nodes.h"

#include <c10/core/Device.h>

#include <functional>
#include <map>
#include <stdexcept>

#include "model/node_kinds.h"

namespace tandem::model {

using schedules::NodeKind;

std::vector<std::unique_ptr<Node>> DecoderNodes(const DecoderConfig& config, BatchShape batch,
                                                const Precision& precision, const ops::Operations& ops) {
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
  const std::map<NodeKind, std::function<std::unique_ptr<Node>(const NodeContext&)>> make = {
      {NodeKind::kEmbedding, MakeEmbeddingNode},
      {NodeKind::kAttention,
       [&](const NodeContext& context) {
         return config.latent.kv_rank > 0 ? MakeLatentAttentionNode(context, tables)
                                          : MakeAttentionNode(context, tables);
       }},
      {NodeKind::kMlp, MakeMlpNode},
      {NodeKind::kRoute, MakeRouteNode},
      {NodeKind::kPermute, MakePermuteNode},
      {NodeKind::kSizes, MakeSizesNode},
      {NodeKind::kBalance, MakeBalanceNode},
      {NodeKind::kDispatch, MakeDispatchNode},
      {NodeKind::kExperts, MakeExpertsNode},
      {NodeKind::kCombine, MakeCombineNode},
      {NodeKind::kFinish, MakeFinishNode},
      {NodeKind::kHead, config.keeps_logits ? MakeHeadNode : MakeBlockedHeadNode},
  };
  std::vector<std::unique_ptr<Node>> nodes;
  for (const DecoderNode& node : DecoderNodeList(config)) {
    nodes.push_back(make.at(node.kind)(context_of(node.unit)));
  }
  return nodes;
}

}  // namespace tandem::model
