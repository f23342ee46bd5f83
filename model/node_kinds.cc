// SPDX-License-Identifier: Apache-2.0
#include "model/node_kinds.h"

#include <algorithm>
#include <stdexcept>

#include "ops/linear_work.h"
#include "ops/row_work.h"
#include "ops/sparse_work.h"

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
    {NodeKind::kPermute, "permute", DeclarePermute},
    {NodeKind::kSizes, "sizes", DeclareSizes},
    {NodeKind::kBalance, "balance", DeclareBalance},
    {NodeKind::kDispatch, "dispatch", DeclareDispatch},
    {NodeKind::kExperts, "experts", DeclareExperts},
    {NodeKind::kCombine, "combine", DeclareCombine},
    {NodeKind::kFinish, "finish", DeclareFinish},
    {NodeKind::kHead, "head", DeclareHead},
};

// What the layers of a decoder are made of, in forward order.
std::vector<NodeKind> LayerNodes(bool sparse, const MixtureOfExperts& moe) {
  static const std::vector<NodeKind> dense = {NodeKind::kAttention, NodeKind::kMlp};
  static const std::vector<NodeKind> alone = {NodeKind::kAttention, NodeKind::kRoute, NodeKind::kExperts,
                                              NodeKind::kFinish};
  static const std::vector<NodeKind> exchanging = {
      NodeKind::kAttention, NodeKind::kRoute,   NodeKind::kPermute, NodeKind::kDispatch,
      NodeKind::kExperts,   NodeKind::kCombine, NodeKind::kFinish};
  if (!sparse) {
    return dense;
  }
  std::vector<NodeKind> nodes = moe.ranks == 1 ? alone : exchanging;
  if (moe.balance_scope == BalanceScope::kGlobal) {
    nodes.insert(std::find(nodes.begin(), nodes.end(), NodeKind::kRoute) + 1, NodeKind::kBalance);
  }
  if (moe.ranks > 1 && moe.exact_chunks) {
    nodes.insert(std::find(nodes.begin(), nodes.end(), NodeKind::kDispatch), NodeKind::kSizes);
  }
  return nodes;
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
  return {.tensor = {"tokens", {shapes.sequences, shapes.batch_columns}, ElementType::kInt64},
          .from = "tokens"};
}

void ReadDocuments(const DecoderShapes& shapes, NodeDeclaration& declaration) {
  if (!shapes.packs_documents) {
    return;
  }
  declaration.inputs.push_back(BatchTokens(shapes));
  declaration.forward.reads.emplace_back("tokens");
  declaration.backward_input.reads.emplace_back("tokens");
}

InputSpec HiddenState(const std::string& name, const DecoderShapes& shapes) {
  return {.tensor = {name, {shapes.tokens, shapes.hidden}, ElementType::kHidden}, .from = "hidden"};
}

InputSpec ChosenExperts(const DecoderShapes& shapes) {
  return {.tensor = {"chosen", {shapes.tokens, shapes.chosen}, ElementType::kInt64}, .from = "chosen"};
}

std::vector<TensorSpec> SendsScratch(const DecoderShapes& shapes) {
  return {{"place", {shapes.tokens, shapes.expert_ranks}, ElementType::kInt64},
          {"sort_work",
           {ops::SortWorkBytes(shapes.device, shapes.tokens * shapes.expert_ranks, shapes.expert_ranks)},
           ElementType::kByte},
          {"sent_counts", {shapes.expert_ranks}, ElementType::kInt64}};
}

TensorSpec ExchangedCounts(const DecoderShapes& shapes) {
  return {"counts",
          {shapes.expert_ranks, shapes.expert_ranks},
          ElementType::kInt64,
          /*on_host=*/shapes.device == DeviceKind::kGpu};
}

void ReadCounts(const DecoderShapes& shapes, NodeDeclaration& declaration) {
  declaration.inputs.push_back({.tensor = ExchangedCounts(shapes), .from = "counts"});
  declaration.forward.reads.emplace_back("counts");
  declaration.backward_input.reads.emplace_back("counts");
}

TensorSpec BalanceCounts(const DecoderShapes& shapes) {
  return {"balance_counts", {shapes.router.experts}, ElementType::kFloat64};
}

TensorSpec NormWork(const DecoderShapes& shapes) {
  return {"norm_work",
          {ops::RmsNormBackwardWorkBytes(shapes.device, shapes.tokens, shapes.hidden, shapes.compute_bytes)},
          ElementType::kByte};
}

TensorSpec ProductsWork(const DecoderShapes& shapes) {
  return {"products", {ops::LinearWorkBytes(shapes.device, shapes.compute_bytes)}, ElementType::kByte};
}

ParameterSpec NormOver(const char* name, int64_t columns) {
  return {.name = name, .shape = {columns}, .init = Init::kOnes, .gradient_is_statistics = true};
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
    for (const NodeKind kind : LayerNodes(config.IsSparse(layer), config.moe)) {
      const std::string name = unit + "." + InfoOf(kind).name;
      nodes.push_back(
          {.kind = kind, .layer = layer, .name = name, .unit = kind == NodeKind::kExperts ? name : unit});
    }
  }
  nodes.push_back(Alone(NodeKind::kHead));
  return nodes;
}

}  // namespace tandem::model
