// SPDX-License-Identifier: Apache-2.0
#include "ops/token_gate.h"

#include "ops/array_checks.h"
#include "ops/device_kernels.h"
#include "ops/operations.h"
#include "ops/row_work.h"

namespace tandem::ops {
namespace {

template <typename E>
TokenGateArgs<E> ArgsOf(const Array& x, const Array& weight, const Array& gates) {
  return {.x = ElementsOf<E>(x),
          .weight = ElementsOf<E>(weight),
          .rows = x.rows,
          .columns = x.columns,
          .gates = ElementsOf<Arithmetic<E>>(gates)};
}

void CheckTokenGate(const Array& x, const Array& weight, const Array& gates, DeviceKind on) {
  CheckMatrix("x", x, x.rows, x.columns, on);
  CheckElements("weight", weight, x.columns, on);
  CheckElements("gates", gates, x.rows, on);
}

}  // namespace

Call Operations::TokenGate(const Array& x, const Array& weight, const Array& gates) const {
  CheckTokenGate(x, weight, gates, kernels_.kind());
  return WithElementType(x, [&]<typename E>(E) { return kernels_.Bind(ArgsOf<E>(x, weight, gates)); });
}

Call Operations::TokenGateBackward(const Array& grad_gates, const Array& x, const Array& weight,
                                   const Array& gates, const Array& grad_x, bool add_weight,
                                   const Array& grad_weight, Workspace work) const {
  const DeviceKind on = kernels_.kind();
  CheckTokenGate(x, weight, gates, on);
  CheckElements("grad_gates", grad_gates, x.rows, on);
  CheckMatrix("grad_x", grad_x, x.rows, x.columns, on);
  if (grad_weight.defined()) {
    CheckElements("grad_weight", grad_weight, x.columns, on);
    CheckWork("TokenGateBackward", work, RmsNormBackwardWorkBytes(on, x.rows, x.columns, BytesOf(x.type)));
  }
  return WithElementType(x, [&]<typename E>(E) {
    return kernels_.Bind(TokenGateBackwardArgs<E>{.forward = ArgsOf<E>(x, weight, gates),
                                                  .grad_gates = ElementsOf<Arithmetic<E>>(grad_gates),
                                                  .grad_x = ElementsOf<E>(grad_x),
                                                  .add_weight = add_weight,
                                                  .grad_weight = ElementsOf<Arithmetic<E>>(grad_weight),
                                                  .work = work});
  });
}

}  // namespace tandem::ops
