// SPDX-License-Identifier: Apache-2.0
#include "ops/head_norm.h"

#include <ATen/core/Tensor.h>

#include <cstring>

#include "ops/cpu/kernels.h"
#include "ops/tensor_access.h"

namespace tandem::ops {
namespace {

void CheckHeads(const at::Tensor& qkv, int64_t heads, int64_t kv_heads, const at::Tensor& query_weight,
                const at::Tensor& key_weight, const at::Tensor& other) {
  const int64_t head_dim = query_weight.numel();
  CheckElements("query_weight", query_weight, head_dim);
  CheckElements("key_weight", key_weight, head_dim);
  CheckMatrix("qkv", qkv, qkv.size(0), (heads + 2 * kv_heads) * head_dim);
  CheckMatrix("what is normalised", other, qkv.size(0), qkv.size(1));
}

}  // namespace

void HeadNorm(const at::Tensor& qkv, int64_t heads, int64_t kv_heads, const at::Tensor& query_weight,
              const at::Tensor& key_weight, double epsilon, at::Tensor& normed) {
  CheckHeads(qkv, heads, kv_heads, query_weight, key_weight, normed);
  const int64_t head_dim = query_weight.numel();
  WithElementType(qkv, [&]<typename E>(E) {
    const cpu::Kernels<E>& kernels = cpu::BestKernels<E>();
    const E* x = ElementsOf<E>(qkv);
    E* y = MutableElementsOf<E>(normed);
    const int64_t key = heads * head_dim;
    const int64_t value = key + kv_heads * head_dim;
    for (int64_t token = 0; token < qkv.size(0); ++token, x += qkv.size(1), y += qkv.size(1)) {
      kernels.rms_norm(x, ElementsOf<E>(query_weight), epsilon, heads, head_dim, y);
      kernels.rms_norm(x + key, ElementsOf<E>(key_weight), epsilon, kv_heads, head_dim, y + key);
      std::memcpy(y + value, x + value, sizeof(E) * kv_heads * head_dim);
    }
  });
}

void HeadNormBackward(const at::Tensor& qkv, int64_t heads, int64_t kv_heads, const at::Tensor& query_weight,
                      const at::Tensor& key_weight, double epsilon, bool add_weights, at::Tensor& grad,
                      at::Tensor& grad_query_weight, at::Tensor& grad_key_weight) {
  CheckHeads(qkv, heads, kv_heads, query_weight, key_weight, grad);
  const int64_t head_dim = query_weight.numel();
  CheckElements("grad_query_weight", grad_query_weight, head_dim);
  CheckElements("grad_key_weight", grad_key_weight, head_dim);
  WithElementType(qkv, [&]<typename E>(E) {
    using T = Arithmetic<E>;
    const cpu::Kernels<E>& kernels = cpu::BestKernels<E>();
    const E* x = ElementsOf<E>(qkv);
    E* g = MutableElementsOf<E>(grad);
    const int64_t key = heads * head_dim;
    bool add = add_weights;
    for (int64_t token = 0; token < qkv.size(0); ++token, x += qkv.size(1), g += qkv.size(1)) {
      // A kernel reads an element of grad_y before it writes that of grad_x.
      kernels.rms_norm_backward(g, x, ElementsOf<E>(query_weight), epsilon, heads, head_dim,
                                /*residual=*/nullptr, /*add_x=*/false, g, add,
                                MutableElementsOf<T>(grad_query_weight));
      kernels.rms_norm_backward(g + key, x + key, ElementsOf<E>(key_weight), epsilon, kv_heads, head_dim,
                                /*residual=*/nullptr, /*add_x=*/false, g + key, add,
                                MutableElementsOf<T>(grad_key_weight));
      add = true;
    }
  });
}

}  // namespace tandem::ops
