// SPDX-License-Identifier: Apache-2.0
#include "ops/state_scan.h"

#include "ops/array_checks.h"
#include "ops/device_kernels.h"
#include "ops/mixer_work.h"
#include "ops/operations.h"

namespace tandem::ops {
namespace {

template <typename E>
StateScanInputs<E> InputsOf(const ScanShape& s, const ScanInputs& in, DeviceKind on) {
  using T = Arithmetic<E>;
  Check(s.sequences > 0 && s.length > 0 && s.head_dim > 0 && s.state > 0 && s.chunk > 0,
        "a scan needs tokens, heads, a state and chunks");
  Check(s.groups > 0 && s.heads > 0 && s.heads % s.groups == 0, s.groups, " groups do not divide ", s.heads,
        " heads");
  return {.shape = s,
          .documents = DocumentsOf(in.documents, s.sequences, s.length, on),
          .xbc = MatrixOf<E>("xbc", in.xbc, s.tokens(), s.channels(), on),
          .raw = RowsOf<E>("steps", in.steps, s.tokens(), s.heads, on),
          .raw_stride = in.steps.row_stride,
          .dt_bias = ElementsOf<T>("dt_bias", in.dt_bias, s.heads, on),
          .a_log = ElementsOf<T>("a_log", in.a_log, s.heads, on),
          .d = ElementsOf<T>("d", in.d, s.heads, on)};
}

}  // namespace

Call Operations::StateScan(const ScanShape& shape, const ScanInputs& in, const Array& y, const Array& states,
                           Workspace work) const {
  const DeviceKind on = kernels_.kind();
  return WithElementType(in.xbc, [&]<typename E>(E) {
    StateScanArgs<E> args{InputsOf<E>(shape, in, on)};
    args.y = MatrixOf<E>("y", y, shape.tokens(), shape.inner(), on);
    args.states = ElementsOf<Arithmetic<E>>("states", states, shape.kept(), on);
    args.work = Checked(args.kName, work, StateScanWorkBytes(on, shape, sizeof(E)));
    return kernels_.Bind(args);
  });
}

Call Operations::StateScanBackward(const ScanShape& shape, const ScanInputs& in, const Array& states,
                                   const Array& grad_y, const Array& grad_xbc, const Array& grad_steps,
                                   const Array& grad_dt_bias, const Array& grad_a_log, const Array& grad_d,
                                   Workspace work) const {
  const DeviceKind on = kernels_.kind();
  return WithElementType(in.xbc, [&]<typename E>(E) {
    using T = Arithmetic<E>;
    StateScanBackwardArgs<E> args{InputsOf<E>(shape, in, on)};
    args.states = ElementsOf<T>("states", states, shape.kept(), on);
    args.grad_y = MatrixOf<E>("grad_y", grad_y, shape.tokens(), shape.inner(), on);
    args.grad_xbc = MatrixOf<E>("grad_xbc", grad_xbc, shape.tokens(), shape.channels(), on);
    args.grad_raw = RowsOf<E>("grad_steps", grad_steps, shape.tokens(), shape.heads, on);
    args.grad_raw_stride = grad_steps.row_stride;
    args.grad_dt_bias = ElementsOf<T>("grad_dt_bias", grad_dt_bias, shape.heads, on);
    args.grad_a_log = ElementsOf<T>("grad_a_log", grad_a_log, shape.heads, on);
    args.grad_d = ElementsOf<T>("grad_d", grad_d, shape.heads, on);
    args.work = Checked(args.kName, work, StateScanBackwardWorkBytes(on, shape, sizeof(E)));
    return kernels_.Bind(args);
  });
}

}  // namespace tandem::ops
