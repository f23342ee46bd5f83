// SPDX-License-Identifier: Apache-2.0
#include "model/parameter_and_flop_counts.h"

#include <algorithm>
#include <string>
#include <vector>

#include "model/node_kinds.h"
#include "model/unit_parameters.h"

namespace tandem::model {
namespace {

// Sums the elements of all units, each unit's times its share.
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

// How often the layer has such a part; a depth may have several.
double NumOf(const DecoderConfig& config, int64_t layer, LayerSymbol symbol) {
  if (config.pattern.empty()) {
    return config.Has(layer, symbol) ? 1 : 0;
  }
  const std::vector<LayerSymbol>& symbols = config.pattern.at(layer);
  return static_cast<double>(std::count(symbols.begin(), symbols.end(), symbol));
}

// Returns the share of a unit's parameters that one token uses.
double ActiveShare(const DecoderConfig& config, const UnitParameters& unit) {
  const ops::RouterConfig& router = config.moe.router;
  return unit.experts ? static_cast<double>(router.top_k) / static_cast<double>(router.experts) : 1.0;
}

}  // namespace

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
      return 0.0;  // a look-up costs no arithmetic; a tied matrix multiplies in the head
    }
    // Tokens that a capacity drops cost nothing, and padding of experts does not count as work of the model.
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

double AttendedLength(int64_t sequence_length, int64_t window) {
  const auto length = static_cast<double>(sequence_length);
  const auto seen = static_cast<double>(std::min(window, sequence_length));
  return seen * (2 - seen / length);
}

}  // namespace tandem::model
