// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "device/bf16.h"
#include "ops/tokens.h"

namespace tandem::ops {

// The loss is the sum over tokens of -log softmax(logits)[target] / T, in nats, added in double; the gradient
// is (softmax(logits) - one_hot(target)) / T times `weight`, which does not affect the loss. A target of
// kNotCounted adds nothing to the loss, and its row of the gradient is zero if its logits are finite; T still
// counts all tokens. Any other target outside the vocabulary throws std::out_of_range on the CPU and makes
// the loss NaN on a GPU.
//
// `logits` is [rows, columns], for tokens [first, first + rows) of T. These are all tokens, or one of several
// chunks, which must be computed in the order of the tokens. Each chunk but the last leaves its part of the
// loss in work memory; the last writes the loss, with the same bits as one call for all rows. `lse`, [T], is
// work memory that all chunks share. `grad_logits` is [rows, columns] and may be `logits`.
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
