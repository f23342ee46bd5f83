// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace tandem::ops {

// The shape of a Mamba-2 mixer's scan (Dao and Gu, "Transformers are SSMs", arXiv:2405.21060, section 7).
struct ScanShape {
  int64_t sequences = 0;  // B
  int64_t length = 0;     // S
  int64_t heads = 0;      // H, a multiple of groups
  int64_t head_dim = 0;   // P
  int64_t groups = 0;     // G: head h uses B and C of group h / (H / G)
  int64_t state = 0;      // N: numbers in the state of each channel
  int64_t chunk = 0;      // tokens between two states that are kept
  double least_step = 0;  // lower limit of a time step

  constexpr int64_t tokens() const { return sequences * length; }
  constexpr int64_t inner() const { return heads * head_dim; }
  // Columns of a token: x [H, P], B [G, N] and C [G, N], in this order.
  constexpr int64_t channels() const { return inner() + 2 * groups * state; }
  constexpr int64_t chunks() const { return (length + chunk - 1) / chunk; }  // of a sequence
  // Numbers of the states that are kept: [B, chunks, H, P, N].
  constexpr int64_t kept() const { return sequences * chunks() * inner() * state; }
};

}  // namespace tandem::ops
