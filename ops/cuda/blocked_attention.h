// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ops/attention.h"

namespace tandem::ops::cuda {

// Causal attention where cuDNN does not compute it (attention_work.h): of float and double, and of bfloat16
// with other heads, which is computed in float. Scores of some rows of one sequence are in work memory at a
// time, and products are LibTorch's. Operands have been checked; current GPU and stream.
void BlockedAttention(const AttentionShape& shape, const at::Tensor& qkv, at::Tensor& context,
                      at::Tensor& lse, Workspace work);
void BlockedAttentionBackward(const AttentionShape& shape, const at::Tensor& qkv, const at::Tensor& lse,
                              const at::Tensor& grad_context, at::Tensor& grad_qkv, Workspace work);

}  // namespace tandem::ops::cuda
