#pragma once

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

}  // namespace tandem::ops
