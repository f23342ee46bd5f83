#include "ops/rms_norm.h"

#include <ATen/core/Tensor.h>

#include "ops/cpu/kernels.h"
#include "ops/tensor_access.h"

namespace tandem::ops {

void RmsNorm(const at::Tensor& x, const at::Tensor& weight, double epsilon, at::Tensor& y) {
  const int64_t columns = weight.numel();
  const int64_t rows = x.size(0);
  CheckElements("weight", weight, columns);
  CheckMatrix("x", x, rows, columns);
  CheckMatrix("y", y, rows, columns);
  WithElementType(x, [&]<typename T>(T) {
    cpu::BestKernels<T>().rms_norm(x.const_data_ptr<T>(), weight.const_data_ptr<T>(), epsilon, rows, columns,
                                   y.mutable_data_ptr<T>());
  });
}

void RmsNormBackward(const at::Tensor& grad_y, const at::Tensor& x, const at::Tensor& weight, double epsilon,
                     const at::Tensor& residual, bool add_x, at::Tensor& grad_x, bool add_weight,
                     at::Tensor& grad_weight) {
  const int64_t columns = weight.numel();
  const int64_t rows = x.size(0);
  CheckElements("weight", weight, columns);
  CheckElements("grad_weight", grad_weight, columns);
  CheckMatrix("grad_y", grad_y, rows, columns);
  CheckMatrix("x", x, rows, columns);
  CheckMatrix("grad_x", grad_x, rows, columns);
  if (residual.defined()) {
    CheckMatrix("residual", residual, rows, columns);
  }
  WithElementType(x, [&]<typename T>(T) {
    cpu::BestKernels<T>().rms_norm_backward(
        grad_y.const_data_ptr<T>(), x.const_data_ptr<T>(), weight.const_data_ptr<T>(), epsilon, rows, columns,
        residual.defined() ? residual.const_data_ptr<T>() : nullptr, add_x, grad_x.mutable_data_ptr<T>(),
        add_weight, grad_weight.mutable_data_ptr<T>());
  });
}

}  // namespace tandem::ops
