// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ops/attention.h"

namespace tandem::ops::cuda {

// Causal attention of shapes that cuDNN does not compute (attention_work.h): in float and double, and for
// other heads in bfloat16, which is computed in float. The scores of some rows of one sequence are in work
// memory at a time, and LibTorch computes the products. Uses the current GPU and stream. E is float, double
// or Bf16.
template <typename E>
void BlockedAttention(const AttentionArgs<E>& args);
template <typename E>
void BlockedAttention(const AttentionBackwardArgs<E>& args);

}  // namespace tandem::ops::cuda
