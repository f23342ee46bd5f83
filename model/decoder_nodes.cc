#include "model/decoder_nodes.h"

#include <memory>
#include <vector>

namespace tandem::model {

std::vector<std::unique_ptr<Node>> DecoderNodes(const DecoderConfig& config, BatchShape batch,
                                                ComputeType type) {
  std::vector<std::unique_ptr<Node>> nodes;
  nodes.push_back(MakeEmbeddingNode(config, batch, type));
  const std::shared_ptr<const RotaryTables> tables = MakeRotaryTables(config, batch, type);
  for (int64_t layer = 0; layer < config.num_hidden_layers; ++layer) {
    nodes.push_back(MakeAttentionNode(config, batch, type, tables));
    nodes.push_back(MakeMlpNode(config, batch, type));
  }
  nodes.push_back(MakeHeadNode(config, batch, type));
  return nodes;
}

}  // namespace tandem::model
