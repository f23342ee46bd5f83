// SPDX-License-Identifier: Apache-2.0
#include "ops/gated_norm.h"

#include "ops/array_checks.h"
#include "ops/device_kernels.h"
#include "ops/mixer_work.h"
#include "ops/operations.h"

namespace tandem::ops {
namespace {

template <typename E>
GatedNormInputs<E> InputsOf(const Array& y, const Array& gate, const Array& weight, int64_t groups,
                            double epsilon, DeviceKind on) {
  const int64_t columns = weight.elements();
  Check(groups > 0 && columns % groups == 0, groups, " groups do not divide ", columns, " columns");
  return {.y = MatrixOf<E>("y", y, y.rows, columns, on),
          .gate = RowsOf<E>("gate", gate, y.rows, columns, on),
          .gate_stride = gate.row_stride,
          .weight = ElementsOf<E>("weight", weight, columns, on),
          .epsilon = epsilon,
          .rows = y.rows,
          .columns = columns,
          .groups = groups};
}

}  // namespace

Call Operations::GatedNorm(const Array& y, const Array& gate, const Array& weight, int64_t groups,
                           double epsilon, const Array& normed) const {
  const DeviceKind on = kernels_.kind();
  return WithElementType(y, [&]<typename E>(E) {
    return kernels_.Bind(GatedNormArgs<E>{InputsOf<E>(y, gate, weight, groups, epsilon, on),
                                          MatrixOf<E>("normed", normed, y.rows, y.columns, on)});
  });
}

Call Operations::GatedNormBackward(const Array& grad_normed, const Array& y, const Array& gate,
                                   const Array& weight, int64_t groups, double epsilon, const Array& grad_y,
                                   const Array& grad_gate, const Array& grad_weight, Workspace work) const {
  const DeviceKind on = kernels_.kind();
  return WithElementType(y, [&]<typename E>(E) {
    GatedNormBackwardArgs<E> args{InputsOf<E>(y, gate, weight, groups, epsilon, on)};
    args.grad_normed = MatrixOf<E>("grad_normed", grad_normed, y.rows, y.columns, on);
    args.grad_y = MatrixOf<E>("grad_y", grad_y, y.rows, y.columns, on);
    args.grad_gate = RowsOf<E>("grad_gate", grad_gate, y.rows, y.columns, on);
    args.grad_gate_stride = grad_gate.row_stride;
    args.grad_weight = ElementsOf<Arithmetic<E>>("grad_weight", grad_weight, y.columns, on);
    args.work = Checked(args.kName, work, GatedNormBackwardWorkBytes(on, y.rows, y.columns, sizeof(E)));
    return kernels_.Bind(args);
  });
}

}  // namespace tandem::ops
