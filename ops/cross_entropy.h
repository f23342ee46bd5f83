// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "device/bf16.h"
#include "ops/tokens.h"

namespace tandem::ops {

// loss = the sum over tokens of -log softmax(logits)[target] / T, in nats, summed in double; and its
// gradient, (softmax(logits) - one_hot(target)) / T. A target of kNotCounted adds nothing to the loss, and
// its row of the gradient is zero where its logits are finite; T is the number of all tokens all the same.
// Another target outside the vocabulary: std::out_of_range on the CPU, a loss of NaN on a GPU.
//
// The gradient, and it alone, is multiplied by `weight`.
//
// logits: [rows, columns], of the tokens [first, first + rows) of T: of all, or of chunks of them that come
// in the order of the tokens. The last one leaves the loss, with the bits that all rows at once would give,
// where those before it left work memory. lse: [T], work memory of all chunks; grad_logits: [rows, columns],
// may be logits.
template <typename E>
struct CrossEntropyArgs {
  static constexpr const char* kName = "CrossEntropy";
  const E* logits;
  Tokens targets;
  int64_t first;
  int64_t rows;
  int64_t columns;
  device::Arithmetic<E>* lse;
  double* loss;
  E* grad_logits;
  double weight = 1;
};

}  // namespace tandem::ops
