#pragma once

namespace at {
class Tensor;
}

namespace tandem::ops {

// output[t] = weight[tokens[t]]. tokens: int64 [B, S], rows may be apart; weight: [V, H]; output: [B * S, H].
// Throws c10::IndexError for an id outside the vocabulary.
void Embedding(const at::Tensor& tokens, const at::Tensor& weight, at::Tensor& output);

// grad_weight (+)= the sum of the rows of grad_output that belong to each id, in token order; rows of other
// ids become zero unless `add`. Where grad_output is of bfloat16, sums are of float: grad_weight is of float,
// or each of its elements is rounded once.
void EmbeddingBackward(const at::Tensor& tokens, const at::Tensor& grad_output, bool add,
                       at::Tensor& grad_weight);

}  // namespace tandem::ops
