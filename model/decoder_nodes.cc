#include "model/decoder_nodes.h"

#include <memory>
#include <vector>

namespace tandem::model {

std::vector<std::unique_ptr<Node>> DecoderNodes(const DecoderConfig& config, BatchShape batch,
                                                ComputeType type, const ops::Operations& ops) {
  std::vector<std::unique_ptr<Node>> nodes;
  nodes.push_back(MakeEmbeddingNode(config, batch, type, ops));
  const std::shared_ptr<const RotaryTables> tables = MakeRotaryTables(config, batch, type, ops);
  for (int64_t layer = 0; layer < config.num_hidden_layers; ++layer) {
    nodes.push_back(MakeAttentionNode(config, batch, type, tables, ops));
    nodes.push_back(MakeMlpNode(config, batch, type, ops));
  }
  nodes.push_back(MakeHeadNode(config, batch, type, ops));
  return nodes;
}

}  // namespace tandem::model
