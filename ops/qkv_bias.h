// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "device/bf16.h"
#include "ops/workspace.h"

namespace tandem::ops {

// Adds a bias to queries, keys and values: to the columns, in this order, of each row of qkv: [tokens, query
// + 2 key]. key 0: one bias, of all columns, as an output projection has it.
template <typename E>
struct QkvBiasArgs {
  static constexpr const char* kName = "QkvBias";
  int64_t tokens;
  int64_t query;  // columns, and elements of the bias
  int64_t key;    // and of values
  const E* query_bias;
  const E* key_bias;
  const E* value_bias;
  E* qkv;
};

// grad_query_bias, grad_key_bias, grad_value_bias (+)= the rows of grad, that of qkv, added up: in their
// order on the CPU, on a GPU over kNormGroups groups of every kNormGroups-th row.
template <typename E>
struct QkvBiasBackwardArgs {
  static constexpr const char* kName = "QkvBiasBackward";
  const E* grad;
  int64_t tokens;
  int64_t query;
  int64_t key;
  bool add;
  device::Arithmetic<E>* grad_query_bias;
  device::Arithmetic<E>* grad_key_bias;
  device::Arithmetic<E>* grad_value_bias;
  Workspace work;  // QkvBiasBackwardWorkBytes (row_work.h)
};

}  // namespace tandem::ops
