// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace tandem::ops {

// The scan of a Mamba-2 mixer (Dao and Gu, "Transformers are SSMs", arXiv:2405.21060, section 7).
struct ScanShape {
  int64_t sequences = 0;  // B
  int64_t length = 0;     // S
  int64_t heads = 0;      // H, a multiple of groups
  int64_t head_dim = 0;   // P
  int64_t groups = 0;     // G: head h reads and writes its state by the vectors of group h / (H / G)
  int64_t state = 0;      // N: numbers of state of a channel
  int64_t chunk = 0;      // tokens between two states that are kept
  double least_step = 0;  // a shorter step of time is taken for one of this length

  constexpr int64_t tokens() const { return sequences * length; }
  constexpr int64_t inner() const { return heads * head_dim; }
  // Columns of x, B and C of a token, in this order: [H, P], [G, N], [G, N].
  constexpr int64_t channels() const { return inner() + 2 * groups * state; }
  constexpr int64_t chunks() const { return (length + chunk - 1) / chunk; }  // of a sequence
  // Numbers that are kept of the states: [B, chunks, H, P, N].
  constexpr int64_t kept() const { return sequences * chunks() * inner() * state; }
};

}  // namespace tandem::ops
