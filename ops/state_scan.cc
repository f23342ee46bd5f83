// SPDX-License-Identifier: Apache-2.0
#include "ops/state_scan.h"

#include "ops/array_checks.h"
#include "ops/device_kernels.h"
#include "ops/mixer_work.h"
#include "ops/operations.h"

namespace tandem::ops {
namespace {

// Throws unless these are of `shape`.
void CheckScan(const ScanShape& s, const ScanInputs& in, const Array& y, const Array& states, DeviceKind on) {
  Check(s.sequences > 0 && s.length > 0 && s.head_dim > 0 && s.state > 0 && s.chunk > 0,
        "a scan needs tokens, heads, a state and chunks");
  Check(s.groups > 0 && s.heads > 0 && s.heads % s.groups == 0, s.groups, " groups do not divide ", s.heads,
        " heads");
  CheckMatrix("xbc", in.xbc, s.tokens(), s.channels(), on);
  CheckRows("steps", in.steps, on);
  Check(in.steps.rows == s.tokens() && in.steps.columns == s.heads, "steps must be [", s.tokens(), ", ",
        s.heads, "], not ", in.steps.shape());
  CheckElements("dt_bias", in.dt_bias, s.heads, on);
  CheckElements("a_log", in.a_log, s.heads, on);
  CheckElements("d", in.d, s.heads, on);
  CheckMatrix("y", y, s.tokens(), s.inner(), on);
  CheckElements("states", states, s.kept(), on);
}

template <typename E>
StateScanInputs<E> InputsOf(const ScanShape& shape, const ScanInputs& in, DeviceKind on) {
  return {.shape = shape,
          .documents = DocumentsOf(in.documents, shape.sequences, shape.length, on),
          .xbc = ElementsOf<E>(in.xbc),
          .raw = ElementsOf<E>(in.steps),
          .raw_stride = in.steps.row_stride,
          .dt_bias = ElementsOf<Arithmetic<E>>(in.dt_bias),
          .a_log = ElementsOf<Arithmetic<E>>(in.a_log),
          .d = ElementsOf<Arithmetic<E>>(in.d)};
}

}  // namespace

Call Operations::StateScan(const ScanShape& shape, const ScanInputs& in, const Array& y, const Array& states,
                           Workspace work) const {
  const DeviceKind on = kernels_.kind();
  CheckScan(shape, in, y, states, on);
  CheckWork("StateScan", work, StateScanWorkBytes(on, shape, BytesOf(in.xbc.type)));
  return WithElementType(in.xbc, [&]<typename E>(E) {
    return kernels_.Bind(StateScanArgs<E>{InputsOf<E>(shape, in, on), ElementsOf<E>(y),
                                          ElementsOf<Arithmetic<E>>(states), work});
  });
}

Call Operations::StateScanBackward(const ScanShape& shape, const ScanInputs& in, const Array& states,
                                   const Array& grad_y, const Array& grad_xbc, const Array& grad_steps,
                                   const Array& grad_dt_bias, const Array& grad_a_log, const Array& grad_d,
                                   Workspace work) const {
  const DeviceKind on = kernels_.kind();
  CheckScan(shape, in, grad_y, states, on);
  CheckMatrix("grad_xbc", grad_xbc, shape.tokens(), shape.channels(), on);
  CheckRows("grad_steps", grad_steps, on);
  Check(grad_steps.rows == shape.tokens() && grad_steps.columns == shape.heads,
        "grad_steps must be as steps, not ", grad_steps.shape());
  CheckElements("grad_dt_bias", grad_dt_bias, shape.heads, on);
  CheckElements("grad_a_log", grad_a_log, shape.heads, on);
  CheckElements("grad_d", grad_d, shape.heads, on);
  CheckWork("StateScanBackward", work, StateScanBackwardWorkBytes(on, shape, BytesOf(in.xbc.type)));
  return WithElementType(in.xbc, [&]<typename E>(E) {
    using T = Arithmetic<E>;
    StateScanBackwardArgs<E> args{InputsOf<E>(shape, in, on)};
    args.states = ElementsOf<T>(states);
    args.grad_y = ElementsOf<E>(grad_y);
    args.grad_xbc = ElementsOf<E>(grad_xbc);
    args.grad_raw = ElementsOf<E>(grad_steps);
    args.grad_raw_stride = grad_steps.row_stride;
    args.grad_dt_bias = ElementsOf<T>(grad_dt_bias);
    args.grad_a_log = ElementsOf<T>(grad_a_log);
    args.grad_d = ElementsOf<T>(grad_d);
    args.work = work;
    return kernels_.Bind(args);
  });
}

}  // namespace tandem::ops
