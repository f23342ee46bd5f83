// SPDX-License-Identifier: Apache-2.0
#include "model/node_kinds.h"

#include <stdexcept>

#include "ops/row_work.h"

namespace tandem::model {
namespace {

using schedules::NodeKind;

struct Kind {
  NodeKind kind;
  const char* name;
  NodeDeclaration (*declare)(const DecoderShapes& shapes);
};

constexpr Kind kKinds[] = {
    {NodeKind::kEmbedding, "embedding", DeclareEmbedding},
    {NodeKind::kAttention, "attention", DeclareAttention},
    {NodeKind::kMlp, "mlp", DeclareMlp},
    {NodeKind::kRoute, "route", DeclareRoute},
    {NodeKind::kExperts, "experts", DeclareExperts},
    {NodeKind::kFinish, "finish", DeclareFinish},
    {NodeKind::kHead, "head", DeclareHead},
};

// What the layers of a decoder are made of, in forward order.
const std::vector<NodeKind>& LayerNodes(bool sparse) {
  static const std::vector<NodeKind> dense_layer = {NodeKind::kAttention, NodeKind::kMlp};
  static const std::vector<NodeKind> sparse_layer = {NodeKind::kAttention, NodeKind::kRoute,
                                                     NodeKind::kExperts, NodeKind::kFinish};
  return sparse ? sparse_layer : dense_layer;
}

const Kind& InfoOf(NodeKind kind) {
  for (const Kind& row : kKinds) {
    if (row.kind == kind) {
      return row;
    }
  }
  throw std::logic_error("no code for nodes of kind " + std::to_string(static_cast<int>(kind)));
}

DecoderNode Alone(NodeKind kind) {
  return {.kind = kind, .name = InfoOf(kind).name, .unit = InfoOf(kind).name};
}

}  // namespace

InputSpec BatchTokens(const DecoderShapes& shapes) {
  return {.tensor = {"tokens", {shapes.sequences, shapes.length + 1}, ElementType::kInt64}, .from = "tokens"};
}

InputSpec HiddenState(const std::string& name, const DecoderShapes& shapes) {
  return {.tensor = {name, {shapes.tokens, shapes.hidden}, ElementType::kHidden}, .from = "hidden"};
}

TensorSpec NormWork(const DecoderShapes& shapes) {
  return {"norm_work",
          {ops::RmsNormBackwardWorkBytes(shapes.device, shapes.tokens, shapes.hidden, shapes.compute_bytes)},
          ElementType::kByte};
}

NodeDeclaration Declare(NodeKind kind, const DecoderShapes& shapes) {
  if (kind == NodeKind::kAttention && shapes.latent.kv_rank > 0) {
    return DeclareLatentAttention(shapes);
  }
  return InfoOf(kind).declare(shapes);
}

std::vector<DecoderNode> DecoderNodeList(const DecoderConfig& config) {
  std::vector<DecoderNode> nodes = {Alone(NodeKind::kEmbedding)};
  for (int layer = 0; layer < config.num_hidden_layers; ++layer) {
    const std::string unit = "layers." + std::to_string(layer);
    for (const NodeKind kind : LayerNodes(config.IsSparse(layer))) {
      const std::string name = unit + "." + InfoOf(kind).name;
      nodes.push_back(
          {.kind = kind, .layer = layer, .name = name, .unit = kind == NodeKind::kExperts ? name : unit});
    }
  }
  nodes.push_back(Alone(NodeKind::kHead));
  return nodes;
}

}  // namespace tandem::model
