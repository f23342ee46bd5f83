// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "device/bf16.h"

namespace tandem::ops {

// Rotary position embedding, half-split ("rotate_half") as in Hugging Face's models: dims i and i + r / 2 of
// a head's first r dims rotate by position times the frequency of that pair (rope_scaling.h). The other dims
// do not rotate.

// Rotates the first `heads` heads of every row in place by sign times their angle. `sign` is 1, or -1 for the
// transpose, which is the backward. x: [rows, ≥ heads * head_dim], rows row_stride apart; row t has position
// t mod length. Tables: [length, pairs]; 2 * pairs ≤ head_dim.
template <typename E>
struct RopeArgs {
  static constexpr const char* kName = "Rope";
  const device::Arithmetic<E>* cosines;
  const device::Arithmetic<E>* sines;
  device::Arithmetic<E> sign;
  int64_t rows;
  int64_t length;
  int64_t heads;
  int64_t head_dim;
  int64_t pairs;
  int64_t row_stride;
  E* x;
};

}  // namespace tandem::ops
