// SPDX-License-Identifier: Apache-2.0
#include "ops/gated_delta.h"

#include "ops/array_checks.h"
#include "ops/delta_work.h"
#include "ops/device_kernels.h"
#include "ops/operations.h"

namespace tandem::ops {
namespace {

template <typename E>
GatedDeltaInputs<E> InputsOf(const DeltaShape& s, const DeltaInputs& in, DeviceKind on) {
  using T = Arithmetic<E>;
  Check(s.sequences > 0 && s.length > 0 && s.key_dim > 0 && s.value_dim > 0 && s.chunk > 0,
        "a gated delta net needs tokens, heads and chunks");
  Check(s.key_heads > 0 && s.value_heads > 0 && s.value_heads % s.key_heads == 0, s.key_heads,
        " key heads do not divide ", s.value_heads, " value heads");
  return {.shape = s,
          .documents = DocumentsOf(in.documents, s.sequences, s.length, on),
          .q = MatrixOf<E>("q", in.q, s.tokens(), s.keys(), on),
          .k = MatrixOf<E>("k", in.k, s.tokens(), s.keys(), on),
          .v = MatrixOf<E>("v", in.v, s.tokens(), s.values(), on),
          .ba = RowsOf<E>("ba", in.ba, s.tokens(), 2 * s.value_heads, on),
          .ba_stride = in.ba.row_stride,
          .dt_bias = ElementsOf<T>("dt_bias", in.dt_bias, s.value_heads, on),
          .a_log = ElementsOf<T>("a_log", in.a_log, s.value_heads, on)};
}

}  // namespace

Call Operations::GatedDelta(const DeltaShape& shape, const DeltaInputs& in, const Array& y,
                            const Array& states, Workspace work) const {
  const DeviceKind on = kernels_.kind();
  return WithElementType(in.v, [&]<typename E>(E) {
    GatedDeltaArgs<E> args{InputsOf<E>(shape, in, on)};
    args.y = MatrixOf<E>("y", y, shape.tokens(), shape.values(), on);
    args.states = ElementsOf<Arithmetic<E>>("states", states, shape.kept(), on);
    args.work = Checked(args.kName, work, GatedDeltaWorkBytes(on, shape, sizeof(E)));
    return kernels_.Bind(args);
  });
}

Call Operations::GatedDeltaBackward(const DeltaShape& shape, const DeltaInputs& in, const Array& states,
                                    const Array& grad_y, const DeltaGradients& out, Workspace work) const {
  const DeviceKind on = kernels_.kind();
  const int64_t tokens = shape.tokens();
  return WithElementType(in.v, [&]<typename E>(E) {
    using T = Arithmetic<E>;
    GatedDeltaBackwardArgs<E> args{InputsOf<E>(shape, in, on)};
    args.states = ElementsOf<T>("states", states, shape.kept(), on);
    args.grad_y = MatrixOf<E>("grad_y", grad_y, tokens, shape.values(), on);
    args.grad_q = MatrixOf<E>("grad_q", out.q, tokens, shape.keys(), on);
    args.grad_k = MatrixOf<E>("grad_k", out.k, tokens, shape.keys(), on);
    args.grad_v = MatrixOf<E>("grad_v", out.v, tokens, shape.values(), on);
    args.grad_ba = RowsOf<E>("grad_ba", out.ba, tokens, 2 * shape.value_heads, on);
    args.grad_ba_stride = out.ba.row_stride;
    args.grad_dt_bias = ElementsOf<T>("grad_dt_bias", out.dt_bias, shape.value_heads, on);
    args.grad_a_log = ElementsOf<T>("grad_a_log", out.a_log, shape.value_heads, on);
    args.work = Checked(args.kName, work, GatedDeltaBackwardWorkBytes(on, shape, sizeof(E)));
    return kernels_.Bind(args);
  });
}

}  // namespace tandem::ops
