// SPDX-License-Identifier: Apache-2.0
#include "ops/qkv_bias.h"

#include <algorithm>

#include "ops/cpu/kernels.h"
#include "ops/moves.h"

namespace tandem::ops::cpu {

template <typename E>
void Run(const QkvBiasArgs<E>& args) {
  const int64_t columns = args.query + 2 * args.key;
  for (int64_t token = 0; token < args.tokens; ++token) {
    E* const row = args.qkv + token * columns;
    RunKernel(AddArgs<E>{args.query_bias, args.query, row});
    RunKernel(AddArgs<E>{args.key_bias, args.key, row + args.query});
    RunKernel(AddArgs<E>{args.value_bias, args.key, row + args.query + args.key});
  }
}
TANDEM_CPU_KERNEL(QkvBiasArgs)

template <typename E>
void Run(const QkvBiasBackwardArgs<E>& args) {
  if (!args.add) {  // zeros are written even if there are no tokens
    std::fill_n(args.grad_query_bias, args.query, 0);
    std::fill_n(args.grad_key_bias, args.key, 0);
    std::fill_n(args.grad_value_bias, args.key, 0);
  }
  const int64_t columns = args.query + 2 * args.key;
  for (int64_t token = 0; token < args.tokens; ++token) {
    const E* const row = args.grad + token * columns;
    RunKernel(AccumulateArgs<E>{row, args.query, args.grad_query_bias});
    RunKernel(AccumulateArgs<E>{row + args.query, args.key, args.grad_key_bias});
    RunKernel(AccumulateArgs<E>{row + args.query + args.key, args.key, args.grad_value_bias});
  }
}
TANDEM_CPU_KERNEL(QkvBiasBackwardArgs)

}  // namespace tandem::ops::cpu
