// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "device/bf16.h"
#include "ops/norm_config.h"
#include "ops/workspace.h"

namespace tandem::ops {

// Applies RMSNorm to each query and key head separately, and copies values. normed is [tokens, (heads + 2
// kv_heads) head_dim]. qkv has the same shape, or also a gate of head_dim columns after each query head
// (output_gate.h), which is not copied. qkv and normed may not overlap. query_weight, key_weight: [head_dim].
template <typename E>
struct HeadNormArgs {
  static constexpr const char* kName = "HeadNorm";
  const E* qkv;
  int64_t tokens;
  int64_t heads;
  int64_t kv_heads;
  int64_t head_dim;
  int64_t query_columns;  // of a query head in qkv: head_dim, or with its gate twice that
  const E* query_weight;
  const E* key_weight;
  NormConfig norm;
  E* normed;

  constexpr int64_t normed_columns() const { return (heads + 2 * kv_heads) * head_dim; }
  constexpr int64_t qkv_columns() const { return heads * query_columns + 2 * kv_heads * head_dim; }
};

// `grad` is the gradient of `normed`. Without gates, grad_qkv is `grad` itself, whose queries and keys become
// the gradient of those of qkv. With gates it has the layout of qkv; its gates and values are not written.
// grad_query_weight and grad_key_weight are set or, if add_weights, added to.
template <typename E>
struct HeadNormBackwardArgs {
  static constexpr const char* kName = "HeadNormBackward";
  HeadNormArgs<E> forward;  // `normed` is not written
  bool add_weights;
  const E* grad;
  E* grad_qkv;
  device::Arithmetic<E>* grad_query_weight;
  device::Arithmetic<E>* grad_key_weight;
  Workspace work;  // of HeadNormBackwardWorkBytes (row_work.h)
};

}  // namespace tandem::ops
