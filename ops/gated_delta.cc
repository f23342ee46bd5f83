// SPDX-License-Identifier: Apache-2.0
#include "ops/gated_delta.h"

#include "ops/array_checks.h"
#include "ops/delta_work.h"
#include "ops/device_kernels.h"
#include "ops/operations.h"

namespace tandem::ops {
namespace {

void CheckDeltaRows(const char* name, const Array& ba, const DeltaShape& s, DeviceKind on) {
  CheckRows(name, ba, on);
  Check(ba.rows == s.tokens() && ba.columns == 2 * s.value_heads, name, " must be [", s.tokens(), ", ",
        2 * s.value_heads, "], not ", ba.shape());
}

// Throws unless these are of `shape`.
void CheckDelta(const DeltaShape& s, const DeltaInputs& in, const Array& y, const Array& states,
                DeviceKind on) {
  Check(s.sequences > 0 && s.length > 0 && s.key_dim > 0 && s.value_dim > 0 && s.chunk > 0,
        "a gated delta net needs tokens, heads and chunks");
  Check(s.key_heads > 0 && s.value_heads > 0 && s.value_heads % s.key_heads == 0, s.key_heads,
        " key heads do not divide ", s.value_heads, " value heads");
  CheckMatrix("q", in.q, s.tokens(), s.keys(), on);
  CheckMatrix("k", in.k, s.tokens(), s.keys(), on);
  CheckMatrix("v", in.v, s.tokens(), s.values(), on);
  CheckDeltaRows("ba", in.ba, s, on);
  CheckElements("dt_bias", in.dt_bias, s.value_heads, on);
  CheckElements("a_log", in.a_log, s.value_heads, on);
  CheckMatrix("y", y, s.tokens(), s.values(), on);
  CheckElements("states", states, s.kept(), on);
}

template <typename E>
GatedDeltaInputs<E> InputsOf(const DeltaShape& shape, const DeltaInputs& in, DeviceKind on) {
  return {.shape = shape,
          .documents = DocumentsOf(in.documents, shape.sequences, shape.length, on),
          .q = ElementsOf<E>(in.q),
          .k = ElementsOf<E>(in.k),
          .v = ElementsOf<E>(in.v),
          .ba = ElementsOf<E>(in.ba),
          .ba_stride = in.ba.row_stride,
          .dt_bias = ElementsOf<Arithmetic<E>>(in.dt_bias),
          .a_log = ElementsOf<Arithmetic<E>>(in.a_log)};
}

}  // namespace

Call Operations::GatedDelta(const DeltaShape& shape, const DeltaInputs& in, const Array& y,
                            const Array& states, Workspace work) const {
  const DeviceKind on = kernels_.kind();
  CheckDelta(shape, in, y, states, on);
  CheckWork("GatedDelta", work, GatedDeltaWorkBytes(on, shape, BytesOf(in.v.type)));
  return WithElementType(in.v, [&]<typename E>(E) {
    return kernels_.Bind(GatedDeltaArgs<E>{InputsOf<E>(shape, in, on), ElementsOf<E>(y),
                                           ElementsOf<Arithmetic<E>>(states), work});
  });
}

Call Operations::GatedDeltaBackward(const DeltaShape& shape, const DeltaInputs& in, const Array& states,
                                    const Array& grad_y, const DeltaGradients& out, Workspace work) const {
  const DeviceKind on = kernels_.kind();
  CheckDelta(shape, in, grad_y, states, on);
  CheckMatrix("grad_q", out.q, shape.tokens(), shape.keys(), on);
  CheckMatrix("grad_k", out.k, shape.tokens(), shape.keys(), on);
  CheckMatrix("grad_v", out.v, shape.tokens(), shape.values(), on);
  CheckDeltaRows("grad_ba", out.ba, shape, on);
  CheckElements("grad_dt_bias", out.dt_bias, shape.value_heads, on);
  CheckElements("grad_a_log", out.a_log, shape.value_heads, on);
  CheckWork("GatedDeltaBackward", work, GatedDeltaBackwardWorkBytes(on, shape, BytesOf(in.v.type)));
  return WithElementType(in.v, [&]<typename E>(E) {
    using T = Arithmetic<E>;
    GatedDeltaBackwardArgs<E> args{InputsOf<E>(shape, in, on)};
    args.states = ElementsOf<T>(states);
    args.grad_y = ElementsOf<E>(grad_y);
    args.grad_q = ElementsOf<E>(out.q);
    args.grad_k = ElementsOf<E>(out.k);
    args.grad_v = ElementsOf<E>(out.v);
    args.grad_ba = ElementsOf<E>(out.ba);
    args.grad_ba_stride = out.ba.row_stride;
    args.grad_dt_bias = ElementsOf<T>(out.dt_bias);
    args.grad_a_log = ElementsOf<T>(out.a_log);
    args.work = work;
    return kernels_.Bind(args);
  });
}

}  // namespace tandem::ops
