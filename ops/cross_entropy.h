// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "device/bf16.h"
#include "ops/tokens.h"

namespace tandem::ops {

// loss = mean over tokens of -log softmax(logits)[target], in nats, summed in double; and its gradient,
// (softmax(logits) - one_hot(target)) / T. logits: [T, columns]; lse: [T], work memory; grad_logits: may be
// logits. A target outside the vocabulary: c10::IndexError on the CPU, a loss of NaN on a GPU.
template <typename E>
struct CrossEntropyArgs {
  static constexpr const char* kName = "CrossEntropy";
  const E* logits;
  Tokens targets;
  int64_t columns;
  device::Arithmetic<E>* lse;
  double* loss;
  E* grad_logits;
};

// The same where logits exist in blocks of columns, one at a time: these are [T, columns], the vocabulary's
// from `first` on.
//
// Blocks come in the order of their columns. lse and target_logits: [T], of what the blocks so far have; the
// first block finds there what it likes, the last one writes the loss.
template <typename E>
struct CrossEntropyBlockArgs {
  static constexpr const char* kName = "CrossEntropyBlock";
  const E* logits;
  Tokens targets;
  int64_t first;
  int64_t columns;
  int64_t vocabulary;
  device::Arithmetic<E>* lse;
  device::Arithmetic<E>* target_logits;
  double* loss;
};

// logits of a block -> their gradient, in place. lse: of all blocks. Blocks come in any order.
template <typename E>
struct CrossEntropyBlockBackwardArgs {
  static constexpr const char* kName = "CrossEntropyBlockBackward";
  Tokens targets;
  int64_t first;
  int64_t columns;
  int64_t vocabulary;
  const device::Arithmetic<E>* lse;
  E* logits;
};

}  // namespace tandem::ops
