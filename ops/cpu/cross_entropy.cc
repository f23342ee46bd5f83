// SPDX-License-Identifier: Apache-2.0
#include "ops/cross_entropy.h"

#include <cmath>
#include <limits>
#include <type_traits>
#include <utility>

#include "ops/cpu/each_token.h"
#include "ops/cpu/kernels.h"
#include "ops/cpu/run.h"

namespace tandem::ops::cpu {
namespace {

// log(exp(a) + exp(b)); NaN where one is.
template <typename T>
T LogAddExp(T a, T b) {
  if (a < b) {
    std::swap(a, b);
  }
  return b == -std::numeric_limits<T>::infinity() ? a : a + std::log1p(std::exp(b - a));
}

template <typename E>
Arithmetic<E> LogitAt(const E* logits, int64_t at) {
  Arithmetic<E> logit = 0;
  BestKernels<E>().widen(logits + at, 1, &logit);
  return logit;
}

int64_t Count(const Tokens& tokens) { return tokens.sequences * tokens.length; }

// The gradients of a block, from logits that may lie elsewhere.
template <typename E>
void Gradients(const E* logits, const CrossEntropyBlockBackwardArgs<E>& block) {
  using T = Arithmetic<E>;
  const Kernels<E>& kernels = BestKernels<E>();
  const int64_t columns = block.columns;
  const double scale = 1.0 / static_cast<double>(Count(block.targets));
  ForEachToken(block.targets, block.vocabulary, [&](int64_t row, int64_t id) {
    const E* const in = logits + row * columns;
    E* const out = block.logits + row * columns;
    const int64_t at = id - block.first;
    const bool has_target = at >= 0 && at < columns;
    // The probability of the target is not rounded before the subtraction.
    T target = has_target ? LogitAt(in, at) : T{0};
    kernels.softmax(in, block.lse + row, scale, 1, columns, out);
    if (!has_target) {
      return;
    }
    if constexpr (std::is_same_v<E, T>) {
      target = out[at];
    } else {
      target = std::exp(target - block.lse[row]) * static_cast<T>(scale);
    }
    target -= static_cast<T>(scale);
    kernels.narrow(&target, 1, out + at);
  });
}

}  // namespace

template <typename E>
void Run(const CrossEntropyArgs<E>& args) {
  const int64_t rows = Count(args.targets);
  BestKernels<E>().log_sum_exp(args.logits, rows, args.columns, args.lse);
  double total = 0;
  ForEachToken(args.targets, args.columns, [&](int64_t row, int64_t id) {
    total += static_cast<double>(args.lse[row]) -
             static_cast<double>(LogitAt(args.logits, row * args.columns + id));
  });
  *args.loss = total / static_cast<double>(rows);
  Gradients<E>(args.logits, {.targets = args.targets,
                             .first = 0,
                             .columns = args.columns,
                             .vocabulary = args.columns,
                             .lse = args.lse,
                             .logits = args.grad_logits});
}
TANDEM_CPU_KERNEL(CrossEntropyArgs)

template <typename E>
void Run(const CrossEntropyBlockArgs<E>& args) {
  using T = Arithmetic<E>;
  const int64_t columns = args.columns;
  double total = 0;
  ForEachToken(args.targets, args.vocabulary, [&](int64_t row, int64_t id) {
    T sum = 0;
    BestKernels<E>().log_sum_exp(args.logits + row * columns, 1, columns, &sum);
    T& lse = args.lse[row];
    lse = args.first == 0 ? sum : LogAddExp(lse, sum);
    const int64_t at = id - args.first;
    if (at >= 0 && at < columns) {
      args.target_logits[row] = LogitAt(args.logits, row * columns + at);
    }
    total += static_cast<double>(lse) - static_cast<double>(args.target_logits[row]);
  });
  if (args.first + columns == args.vocabulary) {
    *args.loss = total / static_cast<double>(Count(args.targets));
  }
}
TANDEM_CPU_KERNEL(CrossEntropyBlockArgs)

template <typename E>
void Run(const CrossEntropyBlockBackwardArgs<E>& args) {
  Gradients<E>(args.logits, args);
}
TANDEM_CPU_KERNEL(CrossEntropyBlockBackwardArgs)

}  // namespace tandem::ops::cpu
