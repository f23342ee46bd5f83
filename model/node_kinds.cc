// SPDX-License-Identifier: Apache-2.0
#include "model/node_kinds.h"

#include <stdexcept>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "model/depths.h"
#include "ops/linear_work.h"
#include "ops/row_work.h"
#include "ops/sparse_work.h"

namespace tandem::model {
namespace {

const NodeKind* AttentionKind(const DecoderConfig& config, int layer) {
  const bool latent = config.latent.kv_rank > 0;
  const bool has_window = config.HasWindow(layer);
  if ((latent && (has_window || config.qkv_bias || config.output_bias || config.qk_norm != QkNorm::kNone ||
                  config.norms_after || !config.rotates || config.norms_add_one)) ||
      (config.attention_gate &&
       (latent || config.norms_after || config.qkv_bias || config.qk_norm != QkNorm::kHead)) ||
      (config.norms_after && (has_window || config.moe.router.experts > 0))) {
    throw std::logic_error("no kind of node has this attention");
  }
  return latent ? &kLatentAttention : &kAttention;
}

const NodeKind* MlpKind(const DecoderConfig& config) {
  const bool squares = config.activation == Activation::kSquaredRelu;
  if (squares && config.norms_after) {
    throw std::logic_error("no kind of node has this MLP");
  }
  return squares ? &kMlpSquaredRelu : &kMlp;
}

// Adds the kinds from the router to the sum of the experts' results.
void AddExpertKinds(const DecoderConfig& config, std::vector<const NodeKind*>& kinds) {
  const auto add = [&](bool has, const NodeKind& kind) {
    if (has) {
      kinds.push_back(&kind);
    }
  };
  const bool exchanges = config.moe.ranks > 1;
  add(true, kRoute);
  add(config.moe.balance_scope == BalanceScope::kGlobal, kBalance);
  add(exchanges, kPermute);
  add(exchanges && config.moe.exact_chunks, kSizes);
  add(exchanges, kDispatch);
  add(true, kExperts);
  add(exchanges, kCombine);
  add(true, kFinish);
}

void AddKinds(const DecoderConfig& config, int layer, LayerSymbol symbol,
              std::vector<const NodeKind*>& kinds) {
  switch (symbol) {
    case LayerSymbol::kMamba:
      kinds.push_back(&kMamba);
      return;
    case LayerSymbol::kGatedDelta:
      kinds.push_back(&kGatedDelta);
      return;
    case LayerSymbol::kAttention:
    case LayerSymbol::kLatentAttention:
      kinds.push_back(AttentionKind(config, layer));
      return;
    case LayerSymbol::kMlp:
      kinds.push_back(MlpKind(config));
      return;
    case LayerSymbol::kExperts:
      AddExpertKinds(config, kinds);
      return;
    case LayerSymbol::kSparseAttention:
      break;
  }
  throw std::logic_error(std::string("no kind of node is a ") + static_cast<char>(symbol));
}

std::vector<LayerSymbol> SymbolsOf(const DecoderConfig& config, int layer) {
  if (!config.pattern.empty()) {
    return config.pattern.at(layer);
  }
  return {LayerSymbol::kAttention, config.IsSparse(layer) ? LayerSymbol::kExperts : LayerSymbol::kMlp};
}

// Refuses multipliers for kinds of nodes that do not have them.
void CheckMultipliers(const DecoderConfig& config) {
  const bool has_any = config.embedding_multiplier != 1 || config.attention_multiplier != 0 ||
                       config.residual_multiplier != 1 || config.logits_scaling != 1;
  if (has_any && (config.latent.kv_rank > 0 || config.norms_after || config.output_bias ||
                  config.delta.value_heads > 0 || config.depths.number > 0)) {
    throw std::logic_error("no kind of node has these multipliers");
  }
}

// Returns the kinds of nodes of a layer, in forward order.
std::vector<const NodeKind*> LayerKinds(const DecoderConfig& config, int layer) {
  if (!config.layers.empty()) {
    return config.layers.at(layer);
  }
  std::vector<const NodeKind*> kinds;
  for (const LayerSymbol symbol : SymbolsOf(config, layer)) {
    AddKinds(config, layer, symbol, kinds);
  }
  return kinds;
}

// The prefix of a family's names in place of the usual one; the first row that fits counts.
struct OtherName {
  ParameterNames names;
  std::string_view usual;
  std::string_view theirs;
};
constexpr OtherName kOtherNames[] = {
    {ParameterNames::kGranite, "mamba_layernorm.", "input_layernorm."},
    {ParameterNames::kGranite, "mlp.gate.", "block_sparse_moe.router.layer."},
    {ParameterNames::kGranite, "mlp.experts.", "block_sparse_moe.experts."},
    {ParameterNames::kGranite, "mlp.shared_experts.down_proj.", "shared_mlp.output_linear."},
    {ParameterNames::kGranite, "mlp.shared_experts.", "shared_mlp."},
    {ParameterNames::kGranite, "mlp.down_proj.", "shared_mlp.output_linear."},
    {ParameterNames::kGranite, "mlp.", "shared_mlp."},
    {ParameterNames::kQwen3Next, "linear_attn_layernorm.", "input_layernorm."},
    {ParameterNames::kQwen3Next, "mlp.shared_experts.", "mlp.shared_expert."},
    {ParameterNames::kBamba, "mamba_layernorm.", "input_layernorm."},
    {ParameterNames::kBamba, "post_attention_layernorm.", "pre_ff_layernorm."},
    {ParameterNames::kBamba, "mlp.", "feed_forward."},
    {ParameterNames::kBamba, "model.norm.", "model.final_layernorm."},
    {ParameterNames::kOlmo2, "input_layernorm.", "post_attention_layernorm."},
    {ParameterNames::kOlmo2, "post_attention_layernorm.", "post_feedforward_layernorm."},
};

std::string NameOf(ParameterNames names, const std::string& usual) {
  for (const OtherName& other : kOtherNames) {
    if (other.names == names && usual.starts_with(other.usual)) {
      return std::string(other.theirs) + usual.substr(other.usual.size());
    }
  }
  return usual;
}

// Adds the nodes of the layer that is a depth (depths.h).
void AddDepth(const DecoderConfig& config, int64_t depth, std::vector<DecoderNode>& nodes) {
  const int layer = static_cast<int>(config.num_hidden_layers + depth) - 1;
  const std::string unit = UnitOfDepth(depth);
  const auto add = [&](const NodeKind& kind, int letter) {
    const std::string name = absl::StrCat(unit, ".", letter < 0 ? "" : absl::StrCat(letter, "."), kind.name);
    nodes.push_back({.kind = &kind,
                     .layer = layer,
                     .name = name,
                     .unit = kind.experts ? name : unit,
                     .depth = depth,
                     .letter = letter});
  };
  if (depth == 1) {
    add(kMainNorm, -1);
  }
  add(kDepthInput, -1);
  if (!config.layers.empty()) {
    throw std::logic_error("kinds of nodes that a test lists have no depths behind them");
  }
  const std::vector<LayerSymbol> symbols = SymbolsOf(config, layer);
  for (size_t i = 0; i < symbols.size(); ++i) {
    std::vector<const NodeKind*> kinds;
    AddKinds(config, layer, symbols[i], kinds);
    for (const NodeKind* kind : kinds) {
      add(*kind, config.depths.numbers_letters ? static_cast<int>(i) : -1);
    }
  }
  add(kDepthNorm, -1);
}

DecoderNode Alone(const NodeKind& kind) { return {.kind = &kind, .name = kind.name, .unit = kind.name}; }

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

ParameterSpec VectorOf(const char* name, int64_t elements, Init init) {
  return {.name = name, .shape = {elements}, .init = init, .gradient_is_statistics = true};
}

void AddStatisticsGradients(const std::vector<PartSpec>& parts, std::vector<TensorSpec>& intermediates) {
  for (const PartSpec& part : parts) {
    for (const ParameterSpec& parameter : part.parameters) {
      if (parameter.gradient_is_statistics) {
        intermediates.push_back({"grad_" + parameter.name, parameter.shape, ElementType::kStatistics});
      }
    }
  }
}

ParameterSpec NormOver(const DecoderShapes& shapes, const char* name, int64_t columns) {
  return VectorOf(name, columns, shapes.config.norms_add_one ? Init::kZeros : Init::kOnes);
}

DecoderShapes ShapesOf(const DecoderNode& node, const DecoderConfig& config, BatchShape batch,
                       const NodeTypes& types, DeviceKind device) {
  DecoderShapes shapes(config, batch, types.unit.compute, device, types.repeats);
  shapes.depth = node.depth;
  shapes.windowed = shapes.window > 0 && config.HasWindow(node.layer);
  return shapes;
}

NodeDeclaration DeclarationOf(const DecoderNode& node, const DecoderShapes& shapes) {
  NodeDeclaration declaration = node.kind->declare(shapes);
  for (const OutputSpec& output : declaration.outputs) {
    if (!output.written_behind) {
      declaration.forward.writes.push_back(output.tensor.name);
    }
  }
  std::vector<std::string>& writes = declaration.backward_input.writes;
  for (const TensorSpec& intermediate : declaration.intermediates) {
    writes.push_back(intermediate.name);
  }
  if (!writes.empty()) {
    std::vector<std::string>& reads = declaration.backward_weight->reads;
    reads.insert(reads.begin(), writes.begin(), writes.end());
  }
  for (PartSpec& part : declaration.parts) {
    if (node.letter >= 0 && part.unit.empty()) {
      part.name = absl::StrCat(node.letter, ".", part.name);
    }
  }
  FreezeParts(node.unit, shapes, declaration);
  return declaration;
}

std::vector<DecoderNode> DecoderNodeList(const DecoderConfig& config) {
  CheckMultipliers(config);
  std::vector<DecoderNode> nodes = {Alone(kEmbedding)};
  for (int layer = 0; layer < config.num_hidden_layers; ++layer) {
    const std::string unit = "layers." + std::to_string(layer);
    for (const NodeKind* kind : LayerKinds(config, layer)) {
      const std::string name = unit + "." + kind->name;
      nodes.push_back({.kind = kind, .layer = layer, .name = name, .unit = kind->experts ? name : unit});
    }
  }
  if (config.depths.number == 0) {
    nodes.push_back(Alone(kHead));
    return nodes;
  }
  for (int64_t depth = 1; depth <= config.depths.number; ++depth) {
    AddDepth(config, depth, nodes);
  }
  // If it is tied, the head has no parameter of its own.
  const std::string unit = config.tie_word_embeddings ? kEmbedding.name : kHeadOfNormed.name;
  nodes.push_back({.kind = &kHeadOfNormed, .name = kHeadOfNormed.name, .unit = unit});
  for (int64_t depth = 1; depth <= config.depths.number; ++depth) {
    nodes.push_back({.kind = &kDepthHead,
                     .name = absl::StrCat(UnitOfDepth(depth), ".", kDepthHead.name),
                     .unit = unit,
                     .depth = depth});
  }
  return nodes;
}

std::string HuggingFaceName(ParameterNames names, const NodeKind& kind, const std::string& parameter,
                            int layer) {
  const std::pair<std::string, std::string> split = absl::StrSplit(parameter, absl::MaxSplits('.', 1));
  for (const ParameterName& row : kind.names) {
    if (row.parameter == split.first && names == ParameterNames::kMixer) {
      if (row.mixer == nullptr) {
        break;
      }
      return layer < 0 ? row.mixer : absl::StrCat("backbone.layers.", layer, ".", row.mixer);
    }
    if (row.parameter == split.first) {
      const bool mixtral = names == ParameterNames::kMixtral && row.mixtral != nullptr;
      const std::string name =
          absl::StrReplaceAll(mixtral ? row.mixtral : NameOf(names, row.name), {{"*", split.second}});
      return layer < 0 ? name : absl::StrCat("model.layers.", layer, ".", name);
    }
  }
  throw std::logic_error("parameter " + parameter + " has no name in Hugging Face's models");
}

std::string HuggingFaceName(ParameterNames names, const DecoderNode& node, const std::string& parameter) {
  const std::string name =
      HuggingFaceName(names, *node.kind, parameter, node.kind->of_model ? -1 : node.layer);
  if (node.letter < 0) {
    return name;
  }
  const std::string layer = absl::StrCat("model.layers.", node.layer, ".");
  return absl::StrReplaceAll(name, {{layer, absl::StrCat(layer, "layers.", node.letter, ".")}});
}

}  // namespace tandem::model
