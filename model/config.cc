// SPDX-License-Identifier: Apache-2.0
#include "model/config.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "model/decoder_shapes.h"
#include "model/node_kinds.h"
#include "ops/tokens.h"

namespace tandem::model {
namespace {

// Adds the parts that `node` declares to be of its unit.
void AddParts(ParameterNames names, const DecoderNode& node, const NodeDeclaration& declaration,
              UnitParameters& unit) {
  for (const PartSpec& part : declaration.parts) {
    if (!part.unit.empty()) {
      continue;  // another unit's
    }
    unit.parts.push_back({part.name, part.main_type});
    std::string block;
    int blocks = 0;
    for (const Parameter& parameter : unit.parameters) {
      blocks = std::max(blocks, parameter.block + 1);
    }
    for (const ParameterSpec& parameter : part.parameters) {
      blocks += parameter.block.empty() || parameter.block == block ? 0 : 1;
      block = parameter.block;
      unit.parameters.push_back({.name = HuggingFaceName(names, node, parameter.name),
                                 .shape = parameter.shape,
                                 .part = static_cast<int>(unit.parts.size()) - 1,
                                 .block = block.empty() ? -1 : blocks - 1,
                                 .init = parameter.init});
    }
  }
}

// Parts in the main type go behind the others, so that those of one class of types follow each other whatever
// the unit computes in.
void OrderByType(UnitParameters& unit) {
  std::vector<UnitParameters::Part> parts;
  std::vector<int> places(unit.parts.size());
  for (const bool main_type : {false, true}) {
    for (size_t i = 0; i < unit.parts.size(); ++i) {
      if (unit.parts[i].main_type == main_type) {
        places[i] = static_cast<int>(parts.size());
        parts.push_back(unit.parts[i]);
      }
    }
  }
  unit.parts = std::move(parts);
  for (Parameter& parameter : unit.parameters) {
    parameter.part = places[parameter.part];
  }
  std::stable_sort(unit.parameters.begin(), unit.parameters.end(),
                   [](const Parameter& a, const Parameter& b) { return a.part < b.part; });
}

// Elements of all units, each unit's times a share of them.
template <typename Share>
double SumOfUnits(const DecoderConfig& config, const Share& share) {
  double total = 0;
  for (const UnitParameters& unit : DecoderUnits(WithAllExperts(config))) {
    for (const Parameter& parameter : unit.parameters) {
      total += static_cast<double>(NumElements(parameter.shape)) * share(unit);
    }
  }
  return total;
}

// How often the layer has such a part: a depth may have several.
double NumOf(const DecoderConfig& config, int64_t layer, LayerSymbol symbol) {
  if (config.pattern.empty()) {
    return config.Has(layer, symbol) ? 1 : 0;
  }
  const std::vector<LayerSymbol>& symbols = config.pattern.at(layer);
  return static_cast<double>(std::count(symbols.begin(), symbols.end(), symbol));
}

// The share of a unit's parameters that one token uses.
double ActiveShare(const DecoderConfig& config, const UnitParameters& unit) {
  const ops::RouterConfig& router = config.moe.router;
  return unit.experts ? static_cast<double>(router.top_k) / static_cast<double>(router.experts) : 1.0;
}

}  // namespace

int64_t BatchShape::Uncounted(const int64_t* batch) const {
  int64_t uncounted = 0;
  for (int64_t sequence = 0; has_targets && sequence < sequences; ++sequence) {
    const int64_t* const targets = batch + sequence * columns() + targets_column();
    uncounted += std::count(targets, targets + sequence_length, ops::kNotCounted);
  }
  return uncounted;
}

bool IsFrozen(const DecoderConfig& config, const std::string& unit) {
  return std::find(config.frozen_units.begin(), config.frozen_units.end(), unit) != config.frozen_units.end();
}

bool DecoderConfig::Has(int64_t layer, LayerSymbol symbol) const {
  if (!pattern.empty()) {
    const std::vector<LayerSymbol>& symbols = pattern.at(layer);
    return std::find(symbols.begin(), symbols.end(), symbol) != symbols.end();
  }
  const bool sparse = moe.router.experts > 0 && (layer + 1) % moe.decoder_sparse_step == 0 &&
                      layer >= moe.first_k_dense_replace;
  const bool narrow = latent.kv_rank > 0;
  return symbol == (narrow ? LayerSymbol::kLatentAttention : LayerSymbol::kAttention) ||
         symbol == (sparse ? LayerSymbol::kExperts : LayerSymbol::kMlp);
}

bool DecoderConfig::HasWindow(int64_t layer) const {
  return sliding_window > 0 && std::binary_search(window_layers.begin(), window_layers.end(), layer);
}

double AttendedLength(int64_t sequence_length, int64_t window) {
  const auto length = static_cast<double>(sequence_length);
  const auto seen = static_cast<double>(std::min(window, sequence_length));
  return seen * (2 - seen / length);
}

double ExpectedFill(const MixtureOfExperts& moe) {
  if (moe.router.deals) {  // to experts that lie apart
    return std::min(1.0, static_cast<double>(moe.router.top_k) / static_cast<double>(moe.ranks));
  }
  // That none of the k different experts of a token is among the E / P of the rank.
  double none = 1;
  const auto experts = static_cast<double>(moe.router.experts);
  const double elsewhere = experts - experts / static_cast<double>(moe.ranks);
  for (int64_t j = 0; j < moe.router.top_k; ++j) {
    const auto drawn = static_cast<double>(j);
    none *= std::max(0.0, elsewhere - drawn) / (experts - drawn);
  }
  return 1 - none;
}

int64_t RowsOfRoom(const MixtureOfExperts& moe, double multiple, int64_t tokens) {
  const double expected = ExpectedFill(moe) * static_cast<double>(moe.ranks * tokens);
  // A product that is a whole number but for its rounding is that number.
  return static_cast<int64_t>(std::ceil(multiple * expected * (1 - 1e-12)));
}

DecoderConfig WithAllExperts(DecoderConfig config) {
  config.moe.ranks = 1;
  config.moe.rank = 0;
  return config;
}

std::vector<UnitParameters> DecoderUnits(const DecoderConfig& config) {
  // Parameters do not depend on the batch.
  const BatchShape batch{.sequences = 1, .sequence_length = 1 + config.depths.number};
  std::vector<UnitParameters> units;
  int layer = static_cast<int>(config.num_layers());
  for (const DecoderNode& node : DecoderNodeList(config)) {
    auto unit = std::find_if(units.begin(), units.end(), [&](const auto& u) { return u.name == node.unit; });
    if (unit == units.end()) {
      unit = units.insert(units.end(), {.name = node.unit,
                                        .layer = node.layer < 0 ? layer++ : node.layer,
                                        .experts = node.kind->experts,
                                        .frozen = IsFrozen(config, node.unit)});
    }
    const NodeTypes types(ComputeType::kFp32, node.unit);
    const DecoderShapes shapes = ShapesOf(node, config, batch, types, DeviceKind::kCpu);
    AddParts(config.names, node, DeclarationOf(node, shapes), *unit);
  }
  for (UnitParameters& unit : units) {
    OrderByType(unit);
  }
  return units;
}

int64_t NumParameters(const DecoderConfig& config) {
  return static_cast<int64_t>(SumOfUnits(config, [](const UnitParameters&) { return 1.0; }));
}

int64_t NumActiveParameters(const DecoderConfig& config) {
  return static_cast<int64_t>(
      SumOfUnits(config, [&](const UnitParameters& unit) { return ActiveShare(config, unit); }));
}

double FlopsPerToken(const DecoderConfig& config, int64_t sequence_length) {
  const double products = SumOfUnits(config, [&](const UnitParameters& unit) {
    if (unit.name == "embedding" && !config.tie_word_embeddings) {
      return 0.0;  // looking up rows costs no arithmetic; a tied matrix multiplies in the head
    }
    // Tokens dropped by a capacity cost nothing, and padding of experts is not counted as the model's work.
    const double kept =
        unit.experts && config.moe.capacity.factor > 0 ? std::min(config.moe.capacity.factor, 1.0) : 1.0;
    return (unit.frozen ? 4.0 : 6.0) * kept * ActiveShare(config, unit);
  });
  double heads = 0;  // of the depths, which share a matrix
  const std::string head_unit = config.tie_word_embeddings ? kEmbedding.name : kHead.name;
  for (int64_t depth = 1; depth <= config.depths.number; ++depth) {
    const double share = 1 - static_cast<double>(depth) / static_cast<double>(sequence_length);
    heads += (IsFrozen(config, head_unit) || config.depths.detached ? 4.0 : 6.0) * share *
             static_cast<double>(config.vocab_size * config.hidden_size);
  }
  const int64_t value_dim = config.latent.kv_rank > 0 ? config.latent.value_head_dim : config.head_dim;
  double lengths = 0;  // of all layers
  double mixers = 0;
  double delta_nets = 0;
  for (int64_t layer = 0; layer < config.num_layers(); ++layer) {
    const auto count = [&](LayerSymbol symbol) { return NumOf(config, layer, symbol); };
    lengths += (count(LayerSymbol::kAttention) + count(LayerSymbol::kLatentAttention)) *
               (config.HasWindow(layer) ? AttendedLength(sequence_length, config.sliding_window)
                                        : static_cast<double>(sequence_length));
    mixers += count(LayerSymbol::kMamba);
    delta_nets += count(LayerSymbol::kGatedDelta);
  }
  const double attention =
      3.0 * lengths * static_cast<double>(config.num_attention_heads * (config.head_dim + value_dim));
  const double states =
      static_cast<double>(config.mamba.heads * config.mamba.head_dim * config.mamba.state) * mixers;
  const double delta_states =
      static_cast<double>(config.delta.value_heads * config.delta.value_dim * config.delta.key_dim) *
      delta_nets;
  return products + heads + attention + 18.0 * states + 24.0 * delta_states;
}

}  // namespace tandem::model
