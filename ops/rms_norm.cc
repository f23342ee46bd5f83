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
  return WithElementType(x, [&]<typename E>(E) {
    return kernels_.Bind(RmsNormArgs<E>{.x = MatrixOf<E>("x", x, rows, columns, on),
                                        .weight = ElementsOf<E>("weight", weight, columns, on),
                                        .norm = norm,
                                        .rows = rows,
                                        .columns = columns,
                                        .y = MatrixOf<E>("y", y, rows, columns, on)});
  });
}

Call Operations::RmsNormBackward(const Array& grad_y, const Array& x, const Array& weight,
                                 const NormConfig& norm, const Array& residual, bool add_x,
                                 const Array& grad_x, bool add_weight, const Array& grad_weight,
                                 Workspace work) const {
  const DeviceKind on = kernels_.kind();
  const int64_t rows = x.rows;
  const int64_t columns = weight.elements();
  return WithElementType(x, [&]<typename E>(E) {
    return kernels_.Bind(RmsNormBackwardArgs<E>{
        .grad_y = MatrixOf<E>("grad_y", grad_y, rows, columns, on),
        .x = MatrixOf<E>("x", x, rows, columns, on),
        .weight = ElementsOf<E>("weight", weight, columns, on),
        .norm = norm,
        .rows = rows,
        .columns = columns,
        .residual = residual.defined() ? MatrixOf<E>("residual", residual, rows, columns, on) : nullptr,
        .add_x = add_x,
        .grad_x = MatrixOf<E>("grad_x", grad_x, rows, columns, on),
        .add_weight = add_weight,
        .grad_weight = ElementsOf<Arithmetic<E>>("grad_weight", grad_weight, columns, on),
        .work = Checked("RmsNormBackward", work, RmsNormBackwardWorkBytes(on, rows, columns, sizeof(E)))});
  });
}

}  // namespace tandem::ops
