// SPDX-License-Identifier: Apache-2.0
#include "ops/output_gate.h"

#include "ops/array_checks.h"
#include "ops/device_kernels.h"
#include "ops/operations.h"

namespace tandem::ops {
namespace {

template <typename E>
OutputGateArgs<E> ArgsOf(const Array& context, const Array& qkv, int64_t heads, const Array& gated,
                         DeviceKind on) {
  Check(heads > 0 && context.columns % heads == 0, "context must have whole heads, not ", context.shape());
  Check(qkv.columns >= 2 * context.columns, "qkv must have a query and a gate for each head of context, not ",
        qkv.shape());
  return {.context = MatrixOf<E>("context", context, context.rows, context.columns, on),
          .qkv = RowsOf<E>("qkv", qkv, context.rows, qkv.columns, on),
          .qkv_stride = qkv.row_stride,
          .tokens = context.rows,
          .heads = heads,
          .head_dim = context.columns / heads,
          .gated = MatrixOf<E>("gated", gated, context.rows, context.columns, on)};
}

}  // namespace

Call Operations::OutputGate(const Array& context, const Array& qkv, int64_t heads, const Array& gated) const {
  return WithElementType(context, [&]<typename E>(E) {
    return kernels_.Bind(ArgsOf<E>(context, qkv, heads, gated, kernels_.kind()));
  });
}

Call Operations::OutputGateBackward(const Array& grad_gated, const Array& context, const Array& qkv,
                                    int64_t heads, const Array& gated, const Array& grad_context,
                                    const Array& grad_qkv) const {
  const DeviceKind on = kernels_.kind();
  const int64_t rows = context.rows;
  Check(grad_qkv.row_stride == qkv.row_stride, "grad_qkv must have the row stride of qkv, not that of ",
        grad_qkv.shape());
  return WithElementType(context, [&]<typename E>(E) {
    return kernels_.Bind(OutputGateBackwardArgs<E>{
        .forward = ArgsOf<E>(context, qkv, heads, gated, on),
        .grad_gated = MatrixOf<E>("grad_gated", grad_gated, rows, context.columns, on),
        .grad_context = MatrixOf<E>("grad_context", grad_context, rows, context.columns, on),
        .grad_qkv = RowsOf<E>("grad_qkv", grad_qkv, rows, qkv.columns, on)});
  });
}

}  // namespace tandem::ops
