// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "device/bf16.h"
#include "ops/workspace.h"

namespace tandem::ops {

// Adds a bias to queries, keys and values, which are the columns, in this order, of each row of qkv: [tokens,
// query + 2 key]. If `key` is 0, there is one bias for all columns, as for an output projection.
template <typename E>
struct QkvBiasArgs {
  static constexpr const char* kName = "QkvBias";
  int64_t tokens;
  int64_t query;  // number of columns of queries
  int64_t key;    // number of columns of keys, and of values
  const E* query_bias;
  const E* key_bias;
  const E* value_bias;
  E* qkv;
};

// grad_query_bias, grad_key_bias and grad_value_bias (+)= the sums of the rows of `grad`, the gradient of
// qkv; they are added if `add`. The CPU adds rows in order; a GPU adds kNormGroups partial sums, each over
// every kNormGroups-th row.
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
  Workspace work;  // of QkvBiasBackwardWorkBytes (row_work.h)
};

}  // namespace tandem::ops
