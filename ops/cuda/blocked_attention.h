// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ops/attention.h"

namespace tandem::ops::cuda {

// Causal attention where cuDNN does not compute it (attention_work.h): of float and double, and of bfloat16
// with other heads, which is computed in float. Scores of some rows of one sequence are in work memory at a
// time, and products are LibTorch's. Current GPU and stream. E: float, double, Bf16.
template <typename E>
void BlockedAttention(const AttentionArgs<E>& args);
template <typename E>
void BlockedAttention(const AttentionBackwardArgs<E>& args);

}  // namespace tandem::ops::cuda
