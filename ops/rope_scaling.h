// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

// How rotary embeddings are adapted to sequences that are longer than those of a model's first training.
// Torch-free, because model/ includes it.
namespace tandem::ops {

enum class RopeScalingType : uint8_t { kNone, kLinear, kLlama3, kYarn };

// Names and meaning are those of Hugging Face's config.json.
struct RopeScaling {
  RopeScalingType type = RopeScalingType::kNone;
  double factor = 1;
  double original_length = 0;  // original_max_position_embeddings, in tokens; for llama3 and yarn
  double low_freq_factor = 1;  // for llama3
  double high_freq_factor = 4;
  double beta_fast = 32;  // for yarn
  double beta_slow = 1;
  bool truncate = true;
  double attention_factor = 0;  // for yarn; 0: computed from factor, mscale and mscale_all_dim
  double mscale = 0;            // 0: unset
  double mscale_all_dim = 0;
};

// The angle per token for each pair of a head with `pairs` pairs: theta^(-i / pairs), scaled.
std::vector<double> RopeFrequencies(double theta, int64_t pairs, const RopeScaling& scaling);

// The factor of sines and cosines: 1 except for yarn.
double RopeAttentionFactor(const RopeScaling& scaling);

}  // namespace tandem::ops
