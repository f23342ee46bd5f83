// SPDX-License-Identifier: Apache-2.0
#include "ops/token_gate.h"

#include "ops/array_checks.h"
#include "ops/device_kernels.h"
#include "ops/operations.h"
#include "ops/row_work.h"

namespace tandem::ops {
namespace {

template <typename E>
TokenGateArgs<E> ArgsOf(const Array& x, const Array& weight, const Array& gates, DeviceKind on) {
  return {.x = MatrixOf<E>("x", x, x.rows, x.columns, on),
          .weight = ElementsOf<E>("weight", weight, x.columns, on),
          .rows = x.rows,
          .columns = x.columns,
          .gates = ElementsOf<Arithmetic<E>>("gates", gates, x.rows, on)};
}

}  // namespace

Call Operations::TokenGate(const Array& x, const Array& weight, const Array& gates) const {
  return WithElementType(
      x, [&]<typename E>(E) { return kernels_.Bind(ArgsOf<E>(x, weight, gates, kernels_.kind())); });
}

Call Operations::TokenGateBackward(const Array& grad_gates, const Array& x, const Array& weight,
                                   const Array& gates, const Array& grad_x, bool add_weight,
                                   const Array& grad_weight, Workspace work) const {
  const DeviceKind on = kernels_.kind();
  return WithElementType(x, [&]<typename E>(E) {
    using T = Arithmetic<E>;
    TokenGateBackwardArgs<E> args{.forward = ArgsOf<E>(x, weight, gates, on),
                                  .grad_gates = ElementsOf<T>("grad_gates", grad_gates, x.rows, on),
                                  .grad_x = MatrixOf<E>("grad_x", grad_x, x.rows, x.columns, on),
                                  .add_weight = add_weight};
    if (grad_weight.defined()) {
      args.grad_weight = ElementsOf<T>("grad_weight", grad_weight, x.columns, on);
      args.work = Checked(args.kName, work, RmsNormBackwardWorkBytes(on, x.rows, x.columns, sizeof(E)));
    }
    return kernels_.Bind(args);
  });
}

}  // namespace tandem::ops
