// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace tandem::ops {

// The shape of a gated delta net's recurrence (Yang, Kautz and Hatamizadeh, "Gated Delta Networks",
// arXiv:2412.06464).
struct DeltaShape {
  int64_t sequences = 0;    // B
  int64_t length = 0;       // S
  int64_t key_heads = 0;    // Hk
  int64_t value_heads = 0;  // Hv, a multiple of Hk: head h reads the queries and keys of head h / (Hv / Hk)
  int64_t key_dim = 0;      // Dk, of a query and of a key
  int64_t value_dim = 0;    // Dv
  int64_t chunk = 0;        // tokens between two states that are kept

  constexpr int64_t tokens() const { return sequences * length; }
  constexpr int64_t share() const { return value_heads / key_heads; }  // value heads for each key head
  constexpr int64_t keys() const { return key_heads * key_dim; }       // columns of queries, and of keys
  constexpr int64_t values() const { return value_heads * value_dim; }
  // Columns of a token: queries, keys and values, in this order.
  constexpr int64_t channels() const { return 2 * keys() + values(); }
  // Columns of one projection for each key head: its query, its key, the values of its value heads, and their
  // gates.
  constexpr int64_t head_columns() const { return 2 * key_dim + 2 * share() * value_dim; }
  constexpr int64_t chunks() const { return (length + chunk - 1) / chunk; }  // of a sequence
  constexpr int64_t state() const { return values() * key_dim; }  // numbers in the states of all heads
  // Numbers of the states that are kept: [B, chunks, Hv, Dv, Dk].
  constexpr int64_t kept() const { return sequences * chunks() * state(); }
};

}  // namespace tandem::ops
