// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstdint>

#include "ops/workspace.h"

namespace at {
class Tensor;
}

namespace tandem::ops {

struct AttentionShape {
  int64_t sequences = 0;  // B
  int64_t length = 0;     // S
  int64_t heads = 0;      // a multiple of kv_heads: head h reads key and value head h / (heads / kv_heads)
  int64_t kv_heads = 0;
  int64_t head_dim = 0;  // d
  // The backward gives the same bits each time. Otherwise it may use faster kernels that do not.
  bool repeats = true;
};

inline double AttentionScale(const AttentionShape& shape) {
  return 1 / std::sqrt(static_cast<double>(shape.head_dim));
}

// Causal attention with scale 1 / sqrt(d). q, k and v are the columns, in this order, of
// qkv: [B * S, (heads + 2 * kv_heads) * d]; context: [B * S, heads * d]; lse: [B, heads, S], the logarithms
// of the sums of exponentials. work: at least AttentionWorkBytes (attention_work.h). lse is of float where
// the rest is of bfloat16.
void Attention(const AttentionShape& shape, const at::Tensor& qkv, at::Tensor& context, at::Tensor& lse,
               Workspace work);

// Overwrites grad_qkv. work: at least AttentionBackwardWorkBytes.
void AttentionBackward(const AttentionShape& shape, const at::Tensor& qkv, const at::Tensor& context,
                       const at::Tensor& lse, const at::Tensor& grad_context, at::Tensor& grad_qkv,
                       Workspace work);

}  // namespace tandem::ops
