// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace at {
class Tensor;
}

namespace tandem::ops {

// loss = mean over tokens of -log softmax(logits)[target], in nats. logits: [T, V]; targets: int64 [B, S]
// with B * S = T, rows may be apart; lse: [T], for the backward, of float where logits are of bfloat16; loss:
// one double, summed in token order in double. Throws c10::IndexError for a target outside the vocabulary.
void CrossEntropy(const at::Tensor& logits, const at::Tensor& targets, at::Tensor& lse, at::Tensor& loss);

// grad_logits = (softmax(logits) - one_hot(target)) / T: the gradient of the mean. May be logits itself.
void CrossEntropyBackward(const at::Tensor& logits, const at::Tensor& targets, const at::Tensor& lse,
                          at::Tensor& grad_logits);

// The same where logits exist in blocks of columns, one at a time: these are [T, C], columns
// [first, first + C) of the vocabulary's.
//
// Blocks come in the order of their columns. lse and target_logits: [T], of what the blocks so far have; the
// first block finds there what it likes, the last one writes the loss.
void CrossEntropyBlock(const at::Tensor& logits, const at::Tensor& targets, int64_t first, int64_t vocabulary,
                       at::Tensor& lse, at::Tensor& target_logits, at::Tensor& loss);

// logits of a block -> their gradient, in place. lse: of all blocks. Blocks come in any order.
void CrossEntropyBlockBackward(const at::Tensor& targets, int64_t first, int64_t vocabulary,
                               const at::Tensor& lse, at::Tensor& logits);

}  // namespace tandem::ops
