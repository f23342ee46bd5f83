// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "device/bf16.h"
#include "ops/latent_shape.h"

namespace tandem::ops {

// Lays heads out as ops/attention.h reads them, qkv: [tokens, 3 heads d], d = head_dim(), with zeros behind
// the values, so that the rotation of ops/rope.h over whole heads turns the right pairs: dims 2 i and 2 i + 1
// of a rotary part become dims i and i + d / 2, and its tables turn no other (LatentRotaryTables).
//   query: [tokens, heads (content + rotary)]; key_value: [tokens, heads (content + value)];
//   down: [tokens, down_columns], whose last `rotary` are the rotary part of a key, which all heads share.
template <typename E>
struct PackLatentHeadsArgs {
  static constexpr const char* kName = "PackLatentHeads";
  LatentHeads heads;
  int64_t tokens;
  int64_t down_columns;
  const E* query;
  const E* key_value;
  const E* down;
  E* qkv;
};

// The backward: overwrites grad_query, grad_key_value, and the last columns of grad_down. The latter are
// summed over the heads in order and rounded once.
template <typename E>
struct UnpackLatentHeadsArgs {
  static constexpr const char* kName = "UnpackLatentHeads";
  LatentHeads heads;
  int64_t tokens;
  int64_t down_columns;
  const E* grad_qkv;
  E* grad_query;
  E* grad_key_value;
  E* grad_down;
};

}  // namespace tandem::ops
