// SPDX-License-Identifier: Apache-2.0
#include "ops/cross_entropy.h"

#include <ATen/core/Tensor.h>

#include <cmath>
#include <type_traits>

#include "ops/cpu/kernels.h"
#include "ops/tensor_access.h"

namespace tandem::ops {

void CrossEntropy(const at::Tensor& logits, const at::Tensor& targets, at::Tensor& lse, at::Tensor& loss) {
  const TokenGrid grid(targets);
  const int64_t rows = grid.size();
  const int64_t columns = logits.size(1);
  CheckMatrix("logits", logits, rows, columns);
  CheckElements("lse", lse, rows);
  CheckElements("loss", loss, 1);
  WithElementType(logits, [&]<typename E>(E) {
    using T = Arithmetic<E>;
    const cpu::Kernels<E>& kernels = cpu::BestKernels<E>();
    const E* in = ElementsOf<E>(logits);
    T* sums = MutableElementsOf<Arithmetic<E>>(lse);
    kernels.log_sum_exp(in, rows, columns, sums);
    double total = 0;
    grid.ForEach(columns, [&](int64_t row, int64_t id) {
      T logit = 0;
      kernels.widen(in + row * columns + id, 1, &logit);
      total += static_cast<double>(sums[row]) - static_cast<double>(logit);
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
    using T = Arithmetic<E>;
    const cpu::Kernels<E>& kernels = cpu::BestKernels<E>();
    const double scale = 1.0 / static_cast<double>(rows);
    const E* in = ElementsOf<E>(logits);
    const T* sums = ElementsOf<T>(lse);
    E* out = MutableElementsOf<E>(grad_logits);
    grid.ForEach(columns, [&](int64_t row, int64_t id) {
      // The probability of the target is not rounded before the subtraction.
      T target = 0;
      kernels.widen(in + row * columns + id, 1, &target);
      kernels.softmax(in + row * columns, sums + row, scale, 1, columns, out + row * columns);
      if constexpr (std::is_same_v<E, T>) {
        target = out[row * columns + id];
      } else {
        target = std::exp(target - sums[row]) * static_cast<T>(scale);
      }
      target -= static_cast<T>(scale);
      kernels.narrow(&target, 1, out + row * columns + id);
    });
  });
}

}  // namespace tandem::ops
