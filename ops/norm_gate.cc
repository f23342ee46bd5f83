// SPDX-License-Identifier: Apache-2.0
#include "ops/norm_gate.h"

#include "ops/array_checks.h"
#include "ops/delta_work.h"
#include "ops/device_kernels.h"
#include "ops/operations.h"

namespace tandem::ops {
namespace {

// Views rows of y as adjacent columns.
template <typename E>
E* GatesOf(const char* name, const Array& gate, const Array& y, DeviceKind on) {
  Check(gate.rows > 0 && y.columns > 0 && gate.columns % y.columns == 0 &&
            gate.rows * gate.columns == y.rows * y.columns,
        name, " must be rows of y side by side, not ", gate.shape());
  return RowsOf<E>(name, gate, gate.rows, gate.columns, on);
}

template <typename E>
NormGateArgs<E> ArgsOf(const Array& y, const Array& gate, const Array& weight, double epsilon,
                       DeviceKind on) {
  return {.y = MatrixOf<E>("y", y, y.rows, weight.elements(), on),
          .gate = GatesOf<E>("gate", gate, y, on),
          .gate_stride = gate.row_stride,
          .together = gate.columns / y.columns,
          .weight = ElementsOf<E>("weight", weight, y.columns, on),
          .epsilon = epsilon,
          .rows = y.rows,
          .columns = y.columns,
          .gated = nullptr};
}

}  // namespace

Call Operations::NormGate(const Array& y, const Array& gate, const Array& weight, double epsilon,
                          const Array& gated) const {
  const DeviceKind on = kernels_.kind();
  return WithElementType(y, [&]<typename E>(E) {
    NormGateArgs<E> args = ArgsOf<E>(y, gate, weight, epsilon, on);
    args.gated = MatrixOf<E>("gated", gated, y.rows, y.columns, on);
    return kernels_.Bind(args);
  });
}

Call Operations::NormGateBackward(const Array& grad_gated, const Array& y, const Array& gate,
                                  const Array& weight, double epsilon, const Array& grad_y,
                                  const Array& grad_gate, const Array& grad_weight, Workspace work) const {
  const DeviceKind on = kernels_.kind();
  Check(grad_gate.columns == gate.columns, "grad_gate must be as the gate, not ", grad_gate.shape());
  return WithElementType(y, [&]<typename E>(E) {
    return kernels_.Bind(NormGateBackwardArgs<E>{
        .forward = ArgsOf<E>(y, gate, weight, epsilon, on),
        .grad_gated = MatrixOf<E>("grad_gated", grad_gated, y.rows, y.columns, on),
        .grad_y = MatrixOf<E>("grad_y", grad_y, y.rows, y.columns, on),
        .grad_gate = GatesOf<E>("grad_gate", grad_gate, y, on),
        .grad_gate_stride = grad_gate.row_stride,
        .grad_weight = ElementsOf<Arithmetic<E>>("grad_weight", grad_weight, y.columns, on),
        .work =
            Checked("NormGateBackward", work, NormGateBackwardWorkBytes(on, y.rows, y.columns, sizeof(E)))});
  });
}

}  // namespace tandem::ops
