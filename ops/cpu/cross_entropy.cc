// SPDX-License-Identifier: Apache-2.0
#include "ops/cross_entropy.h"

#include <algorithm>
#include <cmath>
#include <type_traits>

#include "ops/cpu/each_token.h"
#include "ops/cpu/kernels.h"

namespace tandem::ops::cpu {
namespace {

template <typename E>
Arithmetic<E> LogitAt(const E* logits, int64_t at) {
  Arithmetic<E> logit = 0;
  RunKernel(WidenArgs<E>{logits + at, 1, &logit});
  return logit;
}

// Calls visit(row, id) for the tokens of the chunk; `row` counts the chunk's rows, and `id` may be
// kNotCounted.
template <typename E, typename Visit>
void ForEachRow(const CrossEntropyArgs<E>& chunk, const Visit& visit) {
  ForEachToken(
      chunk.targets, chunk.columns,
      [&](int64_t token, int64_t id) {
        const int64_t row = token - chunk.first;
        if (row >= 0 && row < chunk.rows) {
          visit(row, id);
        }
      },
      kNotCounted);
}

}  // namespace

template <typename E>
void Run(const CrossEntropyArgs<E>& args) {
  using T = Arithmetic<E>;
  const int64_t columns = args.columns;
  const int64_t tokens = args.targets.sequences * args.targets.length;
  if (args.rows == 0 && tokens > 0) {
    return;
  }
  T* const lse = args.lse + args.first;
  RunKernel(LogSumExpArgs<E>{args.logits, args.rows, columns, lse});
  double total = args.first == 0 ? 0 : *args.loss;
  ForEachRow(args, [&](int64_t row, int64_t id) {
    if (id == kNotCounted) {
      return;
    }
    total += static_cast<double>(lse[row]) - static_cast<double>(LogitAt(args.logits, row * columns + id));
  });
  *args.loss = args.first + args.rows == tokens ? total / static_cast<double>(tokens) : total;
  const double scale = args.weight / static_cast<double>(tokens);
  ForEachRow(args, [&](int64_t row, int64_t id) {
    const E* const in = args.logits + row * columns;
    E* const out = args.grad_logits + row * columns;
    if (id == kNotCounted) {
      std::fill_n(out, columns, E{});
      return;
    }
    // The probability of the target is not rounded before the subtraction.
    T target = LogitAt(in, id);
    RunKernel(SoftmaxArgs<E>{in, lse + row, scale, 1, columns, out});
    if constexpr (std::is_same_v<E, T>) {
      target = out[id];
    } else {
      target = std::exp(target - lse[row]) * static_cast<T>(scale);
    }
    target -= static_cast<T>(scale);
    RunKernel(NarrowArgs<E>{&target, 1, out + id});
  });
}
TANDEM_CPU_KERNEL(CrossEntropyArgs)

}  // namespace tandem::ops::cpu
