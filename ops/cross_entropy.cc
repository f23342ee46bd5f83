#include "ops/cross_entropy.h"

#include <ATen/core/Tensor.h>

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
  WithElementType(logits, [&]<typename T>(T) {
    const T* in = logits.const_data_ptr<T>();
    T* sums = lse.mutable_data_ptr<T>();
    cpu::BestKernels<T>().log_sum_exp(in, rows, columns, sums);
    double total = 0;
    grid.ForEach(columns, [&](int64_t row, int64_t id) {
      total += static_cast<double>(sums[row]) - static_cast<double>(in[row * columns + id]);
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
  WithElementType(logits, [&]<typename T>(T) {
    const double scale = 1.0 / static_cast<double>(rows);
    T* out = grad_logits.mutable_data_ptr<T>();
    cpu::BestKernels<T>().softmax(logits.const_data_ptr<T>(), lse.const_data_ptr<T>(), scale, rows, columns,
                                  out);
    grid.ForEach(columns, [&](int64_t row, int64_t id) { out[row * columns + id] -= static_cast<T>(scale); });
  });
}

}  // namespace tandem::ops
