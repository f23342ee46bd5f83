// SPDX-License-Identifier: Apache-2.0
#include "ops/head_norm.h"

#include <algorithm>
#include <cstring>

#include "ops/cpu/kernels.h"
#include "ops/cpu/run.h"

namespace tandem::ops::cpu {

template <typename E>
void Run(const HeadNormArgs<E>& args) {
  const Kernels<E>& kernels = BestKernels<E>();
  const int64_t columns = (args.heads + 2 * args.kv_heads) * args.head_dim;
  const int64_t key = args.heads * args.head_dim;
  const int64_t value = key + args.kv_heads * args.head_dim;
  const E* x = args.qkv;
  E* y = args.normed;
  for (int64_t token = 0; token < args.tokens; ++token, x += columns, y += columns) {
    kernels.rms_norm({x, args.query_weight, args.epsilon, args.heads, args.head_dim, y});
    kernels.rms_norm({x + key, args.key_weight, args.epsilon, args.kv_heads, args.head_dim, y + key});
    std::memcpy(y + value, x + value, sizeof(E) * args.kv_heads * args.head_dim);
  }
}
TANDEM_CPU_KERNEL(HeadNormArgs)

template <typename E>
void Run(const HeadNormBackwardArgs<E>& args) {
  const int64_t columns = (args.heads + 2 * args.kv_heads) * args.head_dim;
  if (!args.add_weights) {  // zeros also where there are no tokens
    std::fill_n(args.grad_query_weight, args.head_dim, 0);
    std::fill_n(args.grad_key_weight, args.head_dim, 0);
  }
  const auto norm = [&](int64_t begin, const E* weight, int64_t heads, Arithmetic<E>* grad_weight) {
    BestKernels<E>().rms_norm_backward({.grad_y = args.grad + begin,
                                        .x = args.qkv + begin,
                                        .weight = weight,
                                        .epsilon = args.epsilon,
                                        .rows = heads,
                                        .columns = args.head_dim,
                                        .residual = nullptr,
                                        .add_x = false,
                                        .grad_x = args.grad + begin,
                                        .add_weight = true,
                                        .grad_weight = grad_weight,
                                        .work = {}});
  };
  for (int64_t token = 0; token < args.tokens; ++token) {
    norm(token * columns, args.query_weight, args.heads, args.grad_query_weight);
    norm(token * columns + args.heads * args.head_dim, args.key_weight, args.kv_heads, args.grad_key_weight);
  }
}
TANDEM_CPU_KERNEL(HeadNormBackwardArgs)

}  // namespace tandem::ops::cpu
