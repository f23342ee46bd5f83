// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace at {
class Tensor;
}

namespace tandem::ops {

// RMSNorm of each query and key head by itself; values are copied. qkv and normed: [T, (heads + 2 kv_heads)
// d], which may not overlap; query_weight, key_weight: [d]. On the CPU.
void HeadNorm(const at::Tensor& qkv, int64_t heads, int64_t kv_heads, const at::Tensor& query_weight,
              const at::Tensor& key_weight, double epsilon, at::Tensor& normed);

// grad: of `normed`, and then in the same memory of qkv. grad_query_weight, grad_key_weight (+)=: [d], of
// float where qkv is of bfloat16.
void HeadNormBackward(const at::Tensor& qkv, int64_t heads, int64_t kv_heads, const at::Tensor& query_weight,
                      const at::Tensor& key_weight, double epsilon, bool add_weights, at::Tensor& grad,
                      at::Tensor& grad_query_weight, at::Tensor& grad_key_weight);

}  // namespace tandem::ops
