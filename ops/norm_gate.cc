// SPDX-License-Identifier: Apache-2.0
#include "ops/norm_gate.h"

#include "ops/array_checks.h"
#include "ops/delta_work.h"
#include "ops/device_kernels.h"
#include "ops/operations.h"

namespace tandem::ops {
namespace {

void CheckGateRows(const char* name, const Array& gate, const Array& y, DeviceKind on) {
  CheckRows(name, gate, on);
  Check(gate.rows > 0 && y.columns > 0 && gate.columns % y.columns == 0 &&
            gate.rows * gate.columns == y.rows * y.columns,
        name, " must be rows of y side by side, not ", gate.shape());
}

// The forward, whose arrays fit each other.
template <typename E>
NormGateArgs<E> ArgsOf(const Array& y, const Array& gate, const Array& weight, double epsilon,
                       const Array& gated) {
  return {.y = ElementsOf<E>(y),
          .gate = ElementsOf<E>(gate),
          .gate_stride = gate.row_stride,
          .together = gate.columns / y.columns,
          .weight = ElementsOf<E>(weight),
          .epsilon = epsilon,
          .rows = y.rows,
          .columns = y.columns,
          .gated = ElementsOf<E>(gated)};
}

void CheckNormGate(const Array& y, const Array& gate, const Array& weight, DeviceKind on) {
  CheckMatrix("y", y, y.rows, weight.elements(), on);
  CheckElements("weight", weight, y.columns, on);
  CheckGateRows("gate", gate, y, on);
}

}  // namespace

Call Operations::NormGate(const Array& y, const Array& gate, const Array& weight, double epsilon,
                          const Array& gated) const {
  const DeviceKind on = kernels_.kind();
  CheckNormGate(y, gate, weight, on);
  CheckMatrix("gated", gated, y.rows, y.columns, on);
  return WithElementType(
      y, [&]<typename E>(E) { return kernels_.Bind(ArgsOf<E>(y, gate, weight, epsilon, gated)); });
}

Call Operations::NormGateBackward(const Array& grad_gated, const Array& y, const Array& gate,
                                  const Array& weight, double epsilon, const Array& grad_y,
                                  const Array& grad_gate, const Array& grad_weight, Workspace work) const {
  const DeviceKind on = kernels_.kind();
  CheckNormGate(y, gate, weight, on);
  CheckMatrix("grad_gated", grad_gated, y.rows, y.columns, on);
  CheckMatrix("grad_y", grad_y, y.rows, y.columns, on);
  CheckGateRows("grad_gate", grad_gate, y, on);
  Check(grad_gate.columns == gate.columns, "grad_gate must be as the gate, not ", grad_gate.shape());
  CheckElements("grad_weight", grad_weight, y.columns, on);
  CheckWork("NormGateBackward", work, NormGateBackwardWorkBytes(on, y.rows, y.columns, BytesOf(y.type)));
  return WithElementType(y, [&]<typename E>(E) {
    return kernels_.Bind(NormGateBackwardArgs<E>{.forward = ArgsOf<E>(y, gate, weight, epsilon, Array()),
                                                 .grad_gated = ElementsOf<E>(grad_gated),
                                                 .grad_y = ElementsOf<E>(grad_y),
                                                 .grad_gate = ElementsOf<E>(grad_gate),
                                                 .grad_gate_stride = grad_gate.row_stride,
                                                 .grad_weight = ElementsOf<Arithmetic<E>>(grad_weight),
                                                 .work = work});
  });
}

}  // namespace tandem::ops
