// SPDX-License-Identifier: Apache-2.0
#include "ops/swiglu.h"

#include "ops/array_checks.h"
#include "ops/device_kernels.h"
#include "ops/operations.h"

namespace tandem::ops {

Call Operations::SwiGlu(const Array& gate_up, const Array& activated, const Array& weights,
                        const Array& begins) const {
  const DeviceKind on = kernels_.kind();
  const int64_t rows = activated.rows;
  const int64_t inner = activated.columns;
  CheckMatrix("gate_up", gate_up, rows, 2 * inner, on);
  CheckMatrix("activated", activated, rows, inner, on);
  Check(!begins.defined() || weights.defined(), "rows of experts come with weights");
  if (weights.defined()) {
    CheckElements("weights", weights, rows, on);
  }
  return WithElementType(gate_up, [&]<typename E>(E) {
    return kernels_.Bind(SwiGluArgs<E>{.gate_up = ElementsOf<E>(gate_up),
                                       .weights = ElementsOf<Arithmetic<E>>(weights),
                                       .rows_there = RowsThere(begins, on),
                                       .rows = rows,
                                       .inner = inner,
                                       .activated = ElementsOf<E>(activated)});
  });
}

Call Operations::SwiGluBackward(const Array& gate_up, const Array& grad_activated, const Array& grad_gate_up,
                                const Array& activated, const Array& weights, const Array& grad_weights,
                                const Array& begins) const {
  const DeviceKind on = kernels_.kind();
  const int64_t rows = grad_activated.rows;
  const int64_t inner = grad_activated.columns;
  CheckMatrix("gate_up", gate_up, rows, 2 * inner, on);
  CheckMatrix("grad_activated", grad_activated, rows, inner, on);
  CheckMatrix("grad_gate_up", grad_gate_up, rows, 2 * inner, on);
  CheckMatrix("activated", activated, rows, inner, on);
  Check(!begins.defined() || weights.defined(), "rows of experts come with weights");
  if (weights.defined()) {
    CheckElements("weights", weights, rows, on);
    CheckElements("grad_weights", grad_weights, rows, on);
  }
  return WithElementType(gate_up, [&]<typename E>(E) {
    using T = Arithmetic<E>;
    return kernels_.Bind(
        SwiGluBackwardArgs<E>{.gate_up = ElementsOf<E>(gate_up),
                              .weights = ElementsOf<T>(weights),
                              .rows_there = RowsThere(begins, on),
                              .grad_activated = ElementsOf<E>(grad_activated),
                              .rows = rows,
                              .inner = inner,
                              .grad_gate_up = ElementsOf<E>(grad_gate_up),
                              .activated = ElementsOf<E>(activated),
                              .grad_weights = ElementsOf<T>(weights.defined() ? grad_weights : Array())});
  });
}

}  // namespace tandem::ops
