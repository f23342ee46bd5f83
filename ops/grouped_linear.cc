// SPDX-License-Identifier: Apache-2.0
#include "ops/grouped_linear.h"

#include <type_traits>

#include "ops/array_checks.h"
#include "ops/device_kernels.h"
#include "ops/operations.h"
#include "ops/sparse_work.h"

namespace tandem::ops {
namespace {

// Of `rows` rows whose elements have element_bytes, with the experts' weights one after another.
ExpertRows RowsOf(const char* operation, const Array& begins, int64_t rows, const Array& weight,
                  int64_t element_bytes, Workspace work, DeviceKind on) {
  const int64_t experts = begins.elements() - 1;
  const bool on_host = begins.on == DeviceKind::kCpu;
  CheckElements("begins", begins, experts + 1, on_host ? DeviceKind::kCpu : on);
  Check(experts > 0 && weight.rows % experts == 0, "the weights of ", experts,
        " experts lie one after another, not ", weight.shape());
  CheckMatrix("weight", weight, weight.rows, weight.columns, on);
  CheckWork(operation, work, GroupedWorkBytes(on, element_bytes, on_host));
  return {.begins = ElementsOf<int64_t>(begins),
          .on_host = on_host,
          .experts = experts,
          .rows = rows,
          .inputs = weight.columns,
          .outputs = weight.rows / experts,
          .work = work};
}

}  // namespace

Call Operations::GroupedLinear(const Array& begins, const Array& x, const Array& weight, const Array& y,
                               Workspace work) const {
  const DeviceKind on = kernels_.kind();
  const ExpertRows rows = RowsOf("GroupedLinear", begins, x.rows, weight, BytesOf(x.type), work, on);
  CheckMatrix("x", x, x.rows, rows.inputs, on);
  CheckMatrix("y", y, x.rows, rows.outputs, on);
  return WithElementType(x, [&]<typename E>(E) {
    return kernels_.Bind(
        GroupedLinearArgs<E>{rows, ElementsOf<E>(x), ElementsOf<E>(weight), ElementsOf<E>(y)});
  });
}

Call Operations::GroupedLinearBackwardInput(const Array& begins, const Array& grad_y, const Array& weight,
                                            const Array& grad_x, Workspace work) const {
  const DeviceKind on = kernels_.kind();
  const ExpertRows rows =
      RowsOf("GroupedLinearBackwardInput", begins, grad_y.rows, weight, BytesOf(grad_y.type), work, on);
  CheckMatrix("grad_y", grad_y, grad_y.rows, rows.outputs, on);
  CheckMatrix("grad_x", grad_x, grad_y.rows, rows.inputs, on);
  return WithElementType(grad_y, [&]<typename E>(E) {
    return kernels_.Bind(GroupedLinearBackwardInputArgs<E>{rows, ElementsOf<E>(grad_y), ElementsOf<E>(weight),
                                                           ElementsOf<E>(grad_x)});
  });
}

Call Operations::GroupedLinearBackwardWeight(const Array& begins, const Array& grad_y, const Array& x,
                                             bool add, const Array& grad_weight, Workspace work) const {
  const DeviceKind on = kernels_.kind();
  const ExpertRows rows =
      RowsOf("GroupedLinearBackwardWeight", begins, x.rows, grad_weight, BytesOf(x.type), work, on);
  CheckMatrix("grad_y", grad_y, x.rows, rows.outputs, on);
  CheckMatrix("x", x, x.rows, rows.inputs, on);
  return WithElementType(x, [&]<typename E>(E) {
    GroupedLinearBackwardWeightArgs<E> args{rows, ElementsOf<E>(grad_y), ElementsOf<E>(x), add};
    if (std::is_same_v<E, Bf16> && grad_weight.type == ElementKind::kBf16) {
      args.rounded = ElementsOf<E>(grad_weight);
    } else {
      args.grad_weight = ElementsOf<Arithmetic<E>>(grad_weight);
    }
    return kernels_.Bind(args);
  });
}

}  // namespace tandem::ops
