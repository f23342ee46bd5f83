// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "device/bf16.h"
#include "ops/tokens.h"
#include "ops/workspace.h"

namespace tandem::ops {

// output[t] = weight[tokens[t]]. weight: [vocabulary, columns]; output: [T, columns]. An id outside the
// vocabulary: std::out_of_range on the CPU, a row of NaN on a GPU.
template <typename E>
struct EmbeddingArgs {
  static constexpr const char* kName = "Embedding";
  Tokens tokens;
  const E* weight;
  int64_t vocabulary;
  int64_t columns;
  E* output;
};

// Sets the gradient of the table to the sum of the rows of grad_output that belong to each id, in the order
// of tokens, or adds the sum if `add`. Without `add`, rows of other ids become zero. One of the two tables is
// null: sums go to grad_weight, or, if grad_output is bfloat16, each element is rounded once to `rounded`. On
// a GPU, ids outside the vocabulary are ignored, and an id with more than 128 tokens has sixteen partial
// sums, each over every sixteenth of its tokens in order, which are then added in order.
template <typename E>
struct EmbeddingBackwardArgs {
  static constexpr const char* kName = "EmbeddingBackward";
  Tokens tokens;
  const E* grad_output;
  bool add;
  int64_t vocabulary;
  int64_t columns;
  device::Arithmetic<E>* grad_weight;
  E* rounded;
  Workspace work;  // of EmbeddingBackwardWorkBytes (row_work.h)
};

}  // namespace tandem::ops
