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
  Check(!begins.defined() || weights.defined(), "begins are allowed only with weights");
  return WithElementType(gate_up, [&]<typename E>(E) {
    return kernels_.Bind(
        SwiGluArgs<E>{.gate_up = MatrixOf<E>("gate_up", gate_up, rows, 2 * inner, on),
                      .weights = ElementsIfGiven<Arithmetic<E>>("weights", weights, rows, on),
                      .rows_there = RowsThere(begins, on),
                      .rows = rows,
                      .inner = inner,
                      .activated = MatrixOf<E>("activated", activated, rows, inner, on)});
  });
}

Call Operations::SwiGluBackward(const Array& gate_up, const Array& grad_activated, const Array& grad_gate_up,
                                const Array& activated, const Array& weights, const Array& grad_weights,
                                const Array& begins) const {
  const DeviceKind on = kernels_.kind();
  const int64_t rows = grad_activated.rows;
  const int64_t inner = grad_activated.columns;
  Check(!begins.defined() || weights.defined(), "begins are allowed only with weights");
  return WithElementType(gate_up, [&]<typename E>(E) {
    using T = Arithmetic<E>;
    SwiGluBackwardArgs<E> args{
        .gate_up = MatrixOf<E>("gate_up", gate_up, rows, 2 * inner, on),
        .rows_there = RowsThere(begins, on),
        .grad_activated = MatrixOf<E>("grad_activated", grad_activated, rows, inner, on),
        .rows = rows,
        .inner = inner,
        .grad_gate_up = MatrixOf<E>("grad_gate_up", grad_gate_up, rows, 2 * inner, on),
        .activated = MatrixOf<E>("activated", activated, rows, inner, on)};
    if (weights.defined()) {
      args.weights = ElementsOf<T>("weights", weights, rows, on);
      args.grad_weights = ElementsOf<T>("grad_weights", grad_weights, rows, on);
    }
    return kernels_.Bind(args);
  });
}

}  // namespace tandem::ops
