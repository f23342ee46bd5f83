// SPDX-License-Identifier: Apache-2.0
#include "ops/rms_norm.h"

#include "ops/array_checks.h"
#include "ops/device_kernels.h"
#include "ops/operations.h"
#include "ops/row_work.h"

namespace tandem::ops {

Call Operations::RmsNorm(const Array& x, const Array& weight, const NormConfig& norm, const Array& y) const {
  const DeviceKind on = kernels_.kind();
  const int64_t rows = x.rows;
  const int64_t columns = weight.elements();
  CheckElements("weight", weight, columns, on);
  CheckMatrix("x", x, rows, columns, on);
  CheckMatrix("y", y, rows, columns, on);
  return WithElementType(x, [&]<typename E>(E) {
    return kernels_.Bind(
        RmsNormArgs<E>{ElementsOf<E>(x), ElementsOf<E>(weight), norm, rows, columns, ElementsOf<E>(y)});
  });
}

Call Operations::RmsNormBackward(const Array& grad_y, const Array& x, const Array& weight,
                                 const NormConfig& norm, const Array& residual, bool add_x,
                                 const Array& grad_x, bool add_weight, const Array& grad_weight,
                                 Workspace work) const {
  const DeviceKind on = kernels_.kind();
  const int64_t rows = x.rows;
  const int64_t columns = weight.elements();
  CheckElements("weight", weight, columns, on);
  CheckElements("grad_weight", grad_weight, columns, on);
  CheckMatrix("grad_y", grad_y, rows, columns, on);
  CheckMatrix("x", x, rows, columns, on);
  CheckMatrix("grad_x", grad_x, rows, columns, on);
  if (residual.defined()) {
    CheckMatrix("residual", residual, rows, columns, on);
  }
  CheckWork("RmsNormBackward", work, RmsNormBackwardWorkBytes(on, rows, columns, BytesOf(x.type)));
  return WithElementType(x, [&]<typename E>(E) {
    return kernels_.Bind(RmsNormBackwardArgs<E>{.grad_y = ElementsOf<E>(grad_y),
                                                .x = ElementsOf<E>(x),
                                                .weight = ElementsOf<E>(weight),
                                                .norm = norm,
                                                .rows = rows,
                                                .columns = columns,
                                                .residual = ElementsOf<E>(residual),
                                                .add_x = add_x,
                                                .grad_x = ElementsOf<E>(grad_x),
                                                .add_weight = add_weight,
                                                .grad_weight = ElementsOf<Arithmetic<E>>(grad_weight),
                                                .work = work});
  });
}

}  // namespace tandem::ops
