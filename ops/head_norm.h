// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "device/bf16.h"
#include "ops/workspace.h"

namespace tandem::ops {

// Applies RMSNorm to each query and key head separately, and copies values. qkv and normed are [tokens,
// (heads + 2 kv_heads) head_dim] and may not overlap. query_weight, key_weight: [head_dim].
template <typename E>
struct HeadNormArgs {
  static constexpr const char* kName = "HeadNorm";
  const E* qkv;
  int64_t tokens;
  int64_t heads;
  int64_t kv_heads;
  int64_t head_dim;
  const E* query_weight;
  const E* key_weight;
  double epsilon;
  E* normed;
};

// `grad` is the gradient of `normed`, and becomes that of qkv in place. grad_query_weight and grad_key_weight
// are set or, if add_weights, added to.
template <typename E>
struct HeadNormBackwardArgs {
  static constexpr const char* kName = "HeadNormBackward";
  const E* qkv;
  int64_t tokens;
  int64_t heads;
  int64_t kv_heads;
  int64_t head_dim;
  const E* query_weight;
  const E* key_weight;
  double epsilon;
  bool add_weights;
  E* grad;
  device::Arithmetic<E>* grad_query_weight;
  device::Arithmetic<E>* grad_key_weight;
  Workspace work;  // of HeadNormBackwardWorkBytes (row_work.h)
};

}  // namespace tandem::ops
