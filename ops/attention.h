#pragma once

#include <cstdint>

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
};

// Causal attention with scale 1 / sqrt(d). q, k and v are the columns, in this order, of
// qkv: [B * S, (heads + 2 * kv_heads) * d]; context: [B * S, heads * d]; lse: [B, heads, S], the logarithms
// of the sums of exponentials. work: at least AttentionWorkElements (attention_work.h). lse and work are of
// float where the rest is of bfloat16: scores are not rounded.
void Attention(const AttentionShape& shape, const at::Tensor& qkv, at::Tensor& context, at::Tensor& lse,
               at::Tensor& work);

// Overwrites grad_qkv. work: at least AttentionBackwardWorkElements.
void AttentionBackward(const AttentionShape& shape, const at::Tensor& qkv, const at::Tensor& context,
                       const at::Tensor& lse, const at::Tensor& grad_context, at::Tensor& grad_qkv,
                       at::Tensor& work);

}  // namespace tandem::ops
