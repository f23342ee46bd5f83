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
  WithElementType(x, [&]<typename E>(E) {
    cpu::BestKernels<E>().rms_norm(ElementsOf<E>(x), ElementsOf<E>(weight), epsilon, rows, columns,
                                   MutableElementsOf<E>(y));
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
  WithElementType(x, [&]<typename E>(E) {
    cpu::BestKernels<E>().rms_norm_backward(
        ElementsOf<E>(grad_y), ElementsOf<E>(x), ElementsOf<E>(weight), epsilon, rows, columns,
        residual.defined() ? ElementsOf<E>(residual) : nullptr, add_x, MutableElementsOf<E>(grad_x),
        add_weight, MutableElementsOf<Arithmetic<E>>(grad_weight));
  });
}

}  // namespace tandem::ops
