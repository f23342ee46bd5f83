// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "device/bf16.h"
#include "ops/workspace.h"

namespace tandem::ops {

// RMSNorm of each query and key head by itself; values are copied. qkv and normed: [tokens, (heads + 2
// kv_heads) head_dim], which may not overlap; query_weight, key_weight: [head_dim].
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

// grad: of `normed`, and then in the same memory of qkv. grad_query_weight, grad_key_weight (+)=.
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
  Workspace work;  // HeadNormBackwardWorkBytes (row_work.h)
};

}  // namespace tandem::ops
