// SPDX-License-Identifier: Apache-2.0
#include "ops/gated_norm.h"

#include "ops/array_checks.h"
#include "ops/device_kernels.h"
#include "ops/mixer_work.h"
#include "ops/operations.h"

namespace tandem::ops {
namespace {

void CheckGated(const Array& y, const Array& gate, const Array& weight, int64_t groups, DeviceKind on) {
  const int64_t columns = weight.elements();
  CheckElements("weight", weight, columns, on);
  Check(groups > 0 && columns % groups == 0, groups, " groups do not divide ", columns, " columns");
  CheckMatrix("y", y, y.rows, columns, on);
  CheckRows("gate", gate, on);
  Check(gate.rows == y.rows && gate.columns == columns, "gate must be as y, not ", gate.shape());
}

template <typename E>
GatedNormInputs<E> InputsOf(const Array& y, const Array& gate, const Array& weight, int64_t groups,
                            double epsilon) {
  return {.y = ElementsOf<E>(y),
          .gate = ElementsOf<E>(gate),
          .gate_stride = gate.row_stride,
          .weight = ElementsOf<E>(weight),
          .epsilon = epsilon,
          .rows = y.rows,
          .columns = y.columns,
          .groups = groups};
}

}  // namespace

Call Operations::GatedNorm(const Array& y, const Array& gate, const Array& weight, int64_t groups,
                           double epsilon, const Array& normed) const {
  const DeviceKind on = kernels_.kind();
  CheckGated(y, gate, weight, groups, on);
  CheckMatrix("normed", normed, y.rows, y.columns, on);
  return WithElementType(y, [&]<typename E>(E) {
    return kernels_.Bind(
        GatedNormArgs<E>{InputsOf<E>(y, gate, weight, groups, epsilon), ElementsOf<E>(normed)});
  });
}

Call Operations::GatedNormBackward(const Array& grad_normed, const Array& y, const Array& gate,
                                   const Array& weight, int64_t groups, double epsilon, const Array& grad_y,
                                   const Array& grad_gate, const Array& grad_weight, Workspace work) const {
  const DeviceKind on = kernels_.kind();
  CheckGated(y, gate, weight, groups, on);
  CheckMatrix("grad_normed", grad_normed, y.rows, y.columns, on);
  CheckMatrix("grad_y", grad_y, y.rows, y.columns, on);
  CheckRows("grad_gate", grad_gate, on);
  Check(grad_gate.rows == y.rows && grad_gate.columns == y.columns, "grad_gate must be as y, not ",
        grad_gate.shape());
  CheckElements("grad_weight", grad_weight, y.columns, on);
  CheckWork("GatedNormBackward", work, GatedNormBackwardWorkBytes(on, y.rows, y.columns, BytesOf(y.type)));
  return WithElementType(y, [&]<typename E>(E) {
    GatedNormBackwardArgs<E> args{InputsOf<E>(y, gate, weight, groups, epsilon)};
    args.grad_normed = ElementsOf<E>(grad_normed);
    args.grad_y = ElementsOf<E>(grad_y);
    args.grad_gate = ElementsOf<E>(grad_gate);
    args.grad_gate_stride = grad_gate.row_stride;
    args.grad_weight = ElementsOf<Arithmetic<E>>(grad_weight);
    args.work = work;
    return kernels_.Bind(args);
  });
}

}  // namespace tandem::ops
