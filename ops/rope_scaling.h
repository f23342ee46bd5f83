// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

// How rotary embeddings are stretched to longer texts than a model was first trained on. Torch-free, so that
// model/ can say it.
namespace tandem::ops {

enum class RopeScalingType : uint8_t { kNone, kLinear, kLlama3, kYarn };

// Names and meaning are those of Hugging Face's config.json.
struct RopeScaling {
  RopeScalingType type = RopeScalingType::kNone;
  double factor = 1;
  double original_length = 0;  // tokens: original_max_position_embeddings; of llama3 and yarn
  double low_freq_factor = 1;  // of llama3
  double high_freq_factor = 4;
  double beta_fast = 32;  // of yarn
  double beta_slow = 1;
  bool truncate = true;
  double attention_factor = 0;  // of yarn; 0: it follows from factor, mscale and mscale_all_dim
  double mscale = 0;            // 0: there is none
  double mscale_all_dim = 0;
};

// Angles a token, of the pairs of a head that has `pairs` of them: theta^(-i / pairs), scaled.
std::vector<double> RopeFrequencies(double theta, int64_t pairs, const RopeScaling& scaling);

// What sines and cosines are multiplied by: 1, but for yarn.
double RopeAttentionFactor(const RopeScaling& scaling);

}  // namespace tandem::ops
