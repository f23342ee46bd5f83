// SPDX-License-Identifier: Apache-2.0
#include "ops/head_norm.h"

#include <algorithm>
#include <cstring>

#include "ops/cpu/kernels.h"
#include "ops/rms_norm.h"

namespace tandem::ops::cpu {

template <typename E>
void Run(const HeadNormArgs<E>& args) {
  const int64_t head_dim = args.head_dim;
  const E* x = args.qkv;
  E* y = args.normed;
  for (int64_t token = 0; token < args.tokens; ++token) {
    for (int64_t head = 0; head < args.heads; ++head, x += args.query_columns, y += head_dim) {
      RunKernel(RmsNormArgs<E>{x, args.query_weight, args.norm, 1, head_dim, y});
    }
    const int64_t keys = args.kv_heads * head_dim;
    RunKernel(RmsNormArgs<E>{x, args.key_weight, args.norm, args.kv_heads, head_dim, y});
    std::memcpy(y + keys, x + keys, sizeof(E) * static_cast<size_t>(keys));
    x += 2 * keys;
    y += 2 * keys;
  }
}
TANDEM_CPU_KERNEL(HeadNormArgs)

template <typename E>
void Run(const HeadNormBackwardArgs<E>& args) {
  const HeadNormArgs<E>& in = args.forward;
  if (!args.add_weights) {  // zeros are written even if there are no tokens
    std::fill_n(args.grad_query_weight, in.head_dim, 0);
    std::fill_n(args.grad_key_weight, in.head_dim, 0);
  }
  const auto norm = [&](const E* grad, int64_t begin, const E* weight, int64_t heads,
                        Arithmetic<E>* grad_weight) {
    RunKernel(RmsNormBackwardArgs<E>{.grad_y = grad,
                                     .x = in.qkv + begin,
                                     .weight = weight,
                                     .norm = in.norm,
                                     .rows = heads,
                                     .columns = in.head_dim,
                                     .residual = nullptr,
                                     .add_x = false,
                                     .grad_x = args.grad_qkv + begin,
                                     .add_weight = true,
                                     .grad_weight = grad_weight,
                                     .work = {}});
  };
  for (int64_t token = 0; token < in.tokens; ++token) {
    const E* grad = args.grad + token * in.normed_columns();
    int64_t begin = token * in.qkv_columns();
    for (int64_t head = 0; head < in.heads; ++head, grad += in.head_dim, begin += in.query_columns) {
      norm(grad, begin, in.query_weight, 1, args.grad_query_weight);
    }
    norm(grad, begin, in.key_weight, in.kv_heads, args.grad_key_weight);
  }
}
TANDEM_CPU_KERNEL(HeadNormBackwardArgs)

}  // namespace tandem::ops::cpu
