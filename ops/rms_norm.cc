// SPDX-License-Identifier: Apache-2.0
#include "ops/rms_norm.h"

#include <ATen/core/Tensor.h>

#include "ops/device_kernels.h"
#include "ops/operations.h"
#include "ops/row_work.h"
#include "ops/tensor_access.h"

namespace tandem::ops {

void Operations::RmsNorm(const at::Tensor& x, const at::Tensor& weight, double epsilon, at::Tensor& y) const {
  const DeviceKind on = kernels_.kind();
  const int64_t rows = x.size(0);
  const int64_t columns = weight.numel();
  CheckElements("weight", weight, columns, on);
  CheckMatrix("x", x, rows, columns, on);
  CheckMatrix("y", y, rows, columns, on);
  WithElementType(x, [&]<typename E>(E) {
    kernels_.Run(RmsNormArgs<E>{ElementsOf<E>(x), ElementsOf<E>(weight), epsilon, rows, columns,
                                MutableElementsOf<E>(y)});
  });
}

void Operations::RmsNormBackward(const at::Tensor& grad_y, const at::Tensor& x, const at::Tensor& weight,
                                 double epsilon, const at::Tensor& residual, bool add_x, at::Tensor& grad_x,
                                 bool add_weight, at::Tensor& grad_weight, Workspace work) const {
  const DeviceKind on = kernels_.kind();
  const int64_t rows = x.size(0);
  const int64_t columns = weight.numel();
  CheckElements("weight", weight, columns, on);
  CheckElements("grad_weight", grad_weight, columns, on);
  CheckMatrix("grad_y", grad_y, rows, columns, on);
  CheckMatrix("x", x, rows, columns, on);
  CheckMatrix("grad_x", grad_x, rows, columns, on);
  if (residual.defined()) {
    CheckMatrix("residual", residual, rows, columns, on);
  }
  CheckWork("RmsNormBackward", work, RmsNormBackwardWorkBytes(on, rows, columns, x.element_size()));
  WithElementType(x, [&]<typename E>(E) {
    kernels_.Run(RmsNormBackwardArgs<E>{.grad_y = ElementsOf<E>(grad_y),
                                        .x = ElementsOf<E>(x),
                                        .weight = ElementsOf<E>(weight),
                                        .epsilon = epsilon,
                                        .rows = rows,
                                        .columns = columns,
                                        .residual = residual.defined() ? ElementsOf<E>(residual) : nullptr,
                                        .add_x = add_x,
                                        .grad_x = MutableElementsOf<E>(grad_x),
                                        .add_weight = add_weight,
                                        .grad_weight = MutableElementsOf<Arithmetic<E>>(grad_weight),
                                        .work = work});
  });
}

}  // namespace tandem::ops
