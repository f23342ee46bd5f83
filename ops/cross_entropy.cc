// SPDX-License-Identifier: Apache-2.0
#include "ops/cross_entropy.h"

#include <ATen/core/Tensor.h>

#include <cmath>
#include <limits>
#include <type_traits>
#include <utility>

#include "ops/cpu/kernels.h"
#include "ops/tensor_access.h"

namespace tandem::ops {
namespace {

// log(exp(a) + exp(b)); NaN where one is.
template <typename T>
T LogAddExp(T a, T b) {
  if (a < b) std::swap(a, b);
  return b == -std::numeric_limits<T>::infinity() ? a : a + std::log1p(std::exp(b - a));
}

template <typename E>
Arithmetic<E> LogitAt(const E* logits, int64_t at) {
  Arithmetic<E> logit = 0;
  cpu::BestKernels<E>().widen(logits + at, 1, &logit);
  return logit;
}

// Columns [first, first + columns) of logits, and of their gradients, whose rows have that many.
template <typename E>
void Gradients(const TokenGrid& grid, int64_t first, int64_t columns, int64_t vocabulary,
               const Arithmetic<E>* lse, const E* logits, E* grad_logits) {
  using T = Arithmetic<E>;
  const cpu::Kernels<E>& kernels = cpu::BestKernels<E>();
  const double scale = 1.0 / static_cast<double>(grid.size());
  grid.ForEach(vocabulary, [&](int64_t row, int64_t id) {
    const E* const in = logits + row * columns;
    E* const out = grad_logits + row * columns;
    const int64_t at = id - first;
    const bool has_target = at >= 0 && at < columns;
    // The probability of the target is not rounded before the subtraction.
    T target = has_target ? LogitAt(in, at) : T{0};
    kernels.softmax(in, lse + row, scale, 1, columns, out);
    if (!has_target) return;
    if constexpr (std::is_same_v<E, T>) {
      target = out[at];
    } else {
      target = std::exp(target - lse[row]) * static_cast<T>(scale);
    }
    target -= static_cast<T>(scale);
    kernels.narrow(&target, 1, out + at);
  });
}

}  // namespace

void CrossEntropy(const at::Tensor& logits, const at::Tensor& targets, at::Tensor& lse, at::Tensor& loss) {
  const TokenGrid grid(targets);
  const int64_t rows = grid.size();
  const int64_t columns = logits.size(1);
  CheckMatrix("logits", logits, rows, columns);
  CheckElements("lse", lse, rows);
  CheckElements("loss", loss, 1);
  WithElementType(logits, [&]<typename E>(E) {
    const E* in = ElementsOf<E>(logits);
    auto* sums = MutableElementsOf<Arithmetic<E>>(lse);
    cpu::BestKernels<E>().log_sum_exp(in, rows, columns, sums);
    double total = 0;
    grid.ForEach(columns, [&](int64_t row, int64_t id) {
      total += static_cast<double>(sums[row]) - static_cast<double>(LogitAt(in, row * columns + id));
    });
    *loss.mutable_data_ptr<double>() = total / static_cast<double>(rows);
  });
}

void CrossEntropyBackward(const at::Tensor& logits, const at::Tensor& targets, const at::Tensor& lse,
                          at::Tensor& grad_logits) {
  const TokenGrid grid(targets);
  const int64_t rows = grid.size();
  const int64_t columns = logits.size(1);
  CheckMatrix("logits", logits, rows, columns);
  CheckElements("lse", lse, rows);
  CheckMatrix("grad_logits", grad_logits, rows, columns);
  WithElementType(logits, [&]<typename E>(E) {
    Gradients(grid, 0, columns, columns, ElementsOf<Arithmetic<E>>(lse), ElementsOf<E>(logits),
              MutableElementsOf<E>(grad_logits));
  });
}

void CrossEntropyBlock(const at::Tensor& logits, const at::Tensor& targets, int64_t first, int64_t vocabulary,
                       at::Tensor& lse, at::Tensor& target_logits, at::Tensor& loss) {
  const TokenGrid grid(targets);
  const int64_t rows = grid.size();
  const int64_t columns = logits.size(1);
  CheckBlock(logits, rows, first, vocabulary);
  CheckElements("lse", lse, rows);
  CheckElements("target_logits", target_logits, rows);
  CheckElements("loss", loss, 1);
  WithElementType(logits, [&]<typename E>(E) {
    using T = Arithmetic<E>;
    const E* in = ElementsOf<E>(logits);
    T* sums = MutableElementsOf<T>(lse);
    T* of_targets = MutableElementsOf<T>(target_logits);
    double total = 0;
    grid.ForEach(vocabulary, [&](int64_t row, int64_t id) {
      T sum = 0;
      cpu::BestKernels<E>().log_sum_exp(in + row * columns, 1, columns, &sum);
      sums[row] = first == 0 ? sum : LogAddExp(sums[row], sum);
      const int64_t at = id - first;
      if (at >= 0 && at < columns) of_targets[row] = LogitAt(in, row * columns + at);
      total += static_cast<double>(sums[row]) - static_cast<double>(of_targets[row]);
    });
    if (first + columns == vocabulary) {
      *loss.mutable_data_ptr<double>() = total / static_cast<double>(rows);
    }
  });
}

void CrossEntropyBlockBackward(const at::Tensor& targets, int64_t first, int64_t vocabulary,
                               const at::Tensor& lse, at::Tensor& logits) {
  const TokenGrid grid(targets);
  CheckBlock(logits, grid.size(), first, vocabulary);
  CheckElements("lse", lse, grid.size());
  WithElementType(logits, [&]<typename E>(E) {
    E* const elements = MutableElementsOf<E>(logits);
    Gradients<E>(grid, first, logits.size(1), vocabulary, ElementsOf<Arithmetic<E>>(lse), elements, elements);
  });
}

}  // namespace tandem::ops
