// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "device/bf16.h"
#include "ops/latent_shape.h"

namespace tandem::ops {

// Copies the parts of latent attention into heads as ops/attention.h reads them, qkv: [tokens, 3 heads d],
// with d = head_dim() and zeros after the values. Dims 2 i and 2 i + 1 of a rotary part become dims i and i +
// d / 2 of the head, so that ops/rope.h rotates them together; with the tables of LatentRotaryTables it
// rotates no other pairs.
//   query: [tokens, heads (content + rotary)]; key_value: [tokens, heads (content + value)];
//   down: [tokens, down_columns], whose last `rotary` columns are the rotary part of the key that all heads
//   share.
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
