// SPDX-License-Identifier: Apache-2.0
#include "ops/output_gate.h"

#include "ops/array_checks.h"
#include "ops/device_kernels.h"
#include "ops/operations.h"

namespace tandem::ops {
namespace {

template <typename E>
OutputGateArgs<E> ArgsOf(const Array& context, const Array& qkv, int64_t heads, const Array& gated) {
  return {.context = ElementsOf<E>(context),
          .qkv = ElementsOf<E>(qkv),
          .qkv_stride = qkv.row_stride,
          .tokens = context.rows,
          .heads = heads,
          .head_dim = context.columns / heads,
          .gated = ElementsOf<E>(gated)};
}

void CheckOutputGate(const Array& context, const Array& qkv, int64_t heads, const Array& gated,
                     DeviceKind on) {
  Check(heads > 0 && context.columns % heads == 0, "context must have whole heads, not ", context.shape());
  CheckMatrix("context", context, context.rows, context.columns, on);
  CheckMatrix("gated", gated, context.rows, context.columns, on);
  CheckRows("qkv", qkv, on);
  Check(qkv.rows == context.rows && qkv.columns >= 2 * context.columns,
        "qkv must have a query and a gate for each head of context, not ", qkv.shape());
}

}  // namespace

Call Operations::OutputGate(const Array& context, const Array& qkv, int64_t heads, const Array& gated) const {
  CheckOutputGate(context, qkv, heads, gated, kernels_.kind());
  return WithElementType(context,
                         [&]<typename E>(E) { return kernels_.Bind(ArgsOf<E>(context, qkv, heads, gated)); });
}

Call Operations::OutputGateBackward(const Array& grad_gated, const Array& context, const Array& qkv,
                                    int64_t heads, const Array& gated, const Array& grad_context,
                                    const Array& grad_qkv) const {
  const DeviceKind on = kernels_.kind();
  CheckOutputGate(context, qkv, heads, gated, on);
  CheckMatrix("grad_gated", grad_gated, context.rows, context.columns, on);
  CheckMatrix("grad_context", grad_context, context.rows, context.columns, on);
  CheckRows("grad_qkv", grad_qkv, on);
  Check(grad_qkv.rows == qkv.rows && grad_qkv.columns == qkv.columns && grad_qkv.row_stride == qkv.row_stride,
        "grad_qkv must lie as qkv does, not ", grad_qkv.shape());
  return WithElementType(context, [&]<typename E>(E) {
    return kernels_.Bind(OutputGateBackwardArgs<E>{.forward = ArgsOf<E>(context, qkv, heads, gated),
                                                   .grad_gated = ElementsOf<E>(grad_gated),
                                                   .grad_context = ElementsOf<E>(grad_context),
                                                   .grad_qkv = ElementsOf<E>(grad_qkv)});
  });
}

}  // namespace tandem::ops
