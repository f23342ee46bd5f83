// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "device/bf16.h"
#include "ops/tokens.h"
#include "ops/workspace.h"

namespace tandem::ops {

// output[t] = factor * weight[tokens[t]]. weight: [vocabulary, columns]; output: [T, columns]. An id outside
// the vocabulary throws std::out_of_range on the CPU and gives a row of NaN on a GPU.
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

// grad_weight[id] (+)= factor * the sum, in token order, of the rows of grad_output whose token is `id`. Rows
// of ids without a token become zero unless `add`. One of grad_weight and `rounded` is null; `rounded`, only
// for bfloat16, gets each element of the gradient rounded once. On a GPU ids outside the vocabulary are
// ignored, and an id of more than 128 tokens has sixteen sums, each of every sixteenth of its tokens in token
// order, which are then added in order.
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
