// SPDX-License-Identifier: Apache-2.0
#include "model/config.h"

#include <algorithm>

#include "ops/tokens.h"

namespace tandem::model {

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

DecoderConfig WithAllExperts(DecoderConfig config) {
  config.moe.ranks = 1;
  config.moe.rank = 0;
  return config;
}

}  // namespace tandem::model
