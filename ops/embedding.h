// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "device/bf16.h"
#include "ops/tokens.h"
#include "ops/workspace.h"

namespace tandem::ops {

// output[t] = factor * weight[tokens[t]]. weight: [vocabulary, columns]; output: [T, columns]. An id outside
// the vocabulary: std::out_of_range on the CPU, a row of NaN on a GPU.
template <typename E>
struct EmbeddingArgs {
  static constexpr const char* kName = "Embedding";
  Tokens tokens;
  const E* weight;
  int64_t vocabulary;
  int64_t columns;
  device::Arithmetic<E> factor;
  E* output;
};

// The gradient of the table (+)= factor * the rows of grad_output that belong to each id, summed in token
// order; rows of other ids become zero unless `add`. One of the two tables is null: sums are in grad_weight,
// or each element is rounded once to `rounded`, where grad_output is of bfloat16. On a GPU ids outside the
// vocabulary add to none, and an id of more than 128 tokens has sixteen sums, each of every sixteenth of its
// tokens in token order, which are then added in order.
template <typename E>
struct EmbeddingBackwardArgs {
  static constexpr const char* kName = "EmbeddingBackward";
  Tokens tokens;
  const E* grad_output;
  bool add;
  int64_t vocabulary;
  int64_t columns;
  device::Arithmetic<E> factor;
  device::Arithmetic<E>* grad_weight;
  E* rounded;
  Workspace work;  // of EmbeddingBackwardWorkBytes (row_work.h)
};

}  // namespace tandem::ops
