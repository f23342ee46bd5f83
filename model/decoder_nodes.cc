#include "model/decoder_nodes.h"

#include <functional>
#include <map>

#include "model/node_kinds.h"

namespace tandem::model {

using schedules::NodeKind;

std::vector<std::unique_ptr<Node>> DecoderNodes(const DecoderConfig& config, BatchShape batch,
                                                ComputeType type, const ops::Operations& ops) {
  const DecoderShapes shapes(config, batch, type);
  NodeContext context{.config = config, .shapes = shapes, .type = type, .ops = ops};
  const std::shared_ptr<const RotaryTables> tables = MakeRotaryTables(context);
  const std::map<NodeKind, std::function<std::unique_ptr<Node>()>> make = {
      {NodeKind::kEmbedding, [&] { return MakeEmbeddingNode(context); }},
      {NodeKind::kAttention, [&] { return MakeAttentionNode(context, tables); }},
      {NodeKind::kMlp, [&] { return MakeMlpNode(context); }},
      {NodeKind::kHead, [&] { return MakeHeadNode(context); }},
  };
  std::vector<std::unique_ptr<Node>> nodes;
  for (const DecoderNode& node : DecoderNodeList(config)) {
    context.unit = node.unit;
    nodes.push_back(make.at(node.kind)());
  }
  return nodes;
}

}  // namespace tandem::model
