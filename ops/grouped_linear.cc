// SPDX-License-Identifier: Apache-2.0
#include "ops/grouped_linear.h"

#include <type_traits>

#include "ops/array_checks.h"
#include "ops/device_kernels.h"
#include "ops/sparse_operations.h"
#include "ops/sparse_work.h"

namespace tandem::ops {
namespace {

// Of the experts' weights, which lie one after another.
struct Experts {
  Experts(const Array& begins, const Array& weight, DeviceKind on)
      : begins(ElementsOf<int64_t>(begins)),
        on_host(begins.on == DeviceKind::kCpu),
        count(begins.elements() - 1),
        inputs(weight.columns) {
    CheckElements("begins", begins, count + 1, on_host ? DeviceKind::kCpu : on);
    Check(count > 0 && weight.rows % count == 0, "the weights of ", count,
          " experts lie one after another, not ", weight.shape());
    outputs = weight.rows / count;
    CheckMatrix("weight", weight, count * outputs, inputs, on);
  }
  const int64_t* begins;
  bool on_host;
  int64_t count;
  int64_t inputs;
  int64_t outputs;  // of each
};

}  // namespace

Call SparseOperations::GroupedLinear(const Array& begins, const Array& x, const Array& weight, const Array& y,
                                     Workspace work) const {
  const DeviceKind on = kernels_.kind();
  const Experts experts(begins, weight, on);
  CheckMatrix("x", x, x.rows, experts.inputs, on);
  CheckMatrix("y", y, x.rows, experts.outputs, on);
  CheckWork("GroupedLinear", work, GroupedWorkBytes(on, BytesOf(x.type), experts.on_host));
  return WithElementType(x, [&]<typename E>(E) {
    return kernels_.Bind(GroupedLinearArgs<E>{.begins = experts.begins,
                                              .on_host = experts.on_host,
                                              .experts = experts.count,
                                              .rows = x.rows,
                                              .x = ElementsOf<E>(x),
                                              .weight = ElementsOf<E>(weight),
                                              .inputs = experts.inputs,
                                              .outputs = experts.outputs,
                                              .y = ElementsOf<E>(y),
                                              .work = work});
  });
}

Call SparseOperations::GroupedLinearBackwardInput(const Array& begins, const Array& grad_y,
                                                  const Array& weight, const Array& grad_x,
                                                  Workspace work) const {
  const DeviceKind on = kernels_.kind();
  const Experts experts(begins, weight, on);
  CheckMatrix("grad_y", grad_y, grad_y.rows, experts.outputs, on);
  CheckMatrix("grad_x", grad_x, grad_y.rows, experts.inputs, on);
  CheckWork("GroupedLinearBackwardInput", work, GroupedWorkBytes(on, BytesOf(grad_y.type), experts.on_host));
  return WithElementType(grad_y, [&]<typename E>(E) {
    return kernels_.Bind(GroupedLinearBackwardInputArgs<E>{.begins = experts.begins,
                                                           .on_host = experts.on_host,
                                                           .experts = experts.count,
                                                           .rows = grad_y.rows,
                                                           .grad_y = ElementsOf<E>(grad_y),
                                                           .weight = ElementsOf<E>(weight),
                                                           .inputs = experts.inputs,
                                                           .outputs = experts.outputs,
                                                           .grad_x = ElementsOf<E>(grad_x),
                                                           .work = work});
  });
}

Call SparseOperations::GroupedLinearBackwardWeight(const Array& begins, const Array& grad_y, const Array& x,
                                                   bool add, const Array& grad_weight, Workspace work) const {
  const DeviceKind on = kernels_.kind();
  const Experts experts(begins, grad_weight, on);
  CheckMatrix("grad_y", grad_y, x.rows, experts.outputs, on);
  CheckMatrix("x", x, x.rows, experts.inputs, on);
  CheckWork("GroupedLinearBackwardWeight", work, GroupedWorkBytes(on, BytesOf(x.type), experts.on_host));
  return WithElementType(x, [&]<typename E>(E) {
    GroupedLinearBackwardWeightArgs<E> args{.begins = experts.begins,
                                            .on_host = experts.on_host,
                                            .experts = experts.count,
                                            .rows = x.rows,
                                            .grad_y = ElementsOf<E>(grad_y),
                                            .x = ElementsOf<E>(x),
                                            .inputs = experts.inputs,
                                            .outputs = experts.outputs,
                                            .add = add,
                                            .grad_weight = nullptr,
                                            .rounded = nullptr,
                                            .work = work};
    if (std::is_same_v<E, Bf16> && grad_weight.type == ElementKind::kBf16) {
      args.rounded = ElementsOf<E>(grad_weight);
    } else {
      args.grad_weight = ElementsOf<Arithmetic<E>>(grad_weight);
    }
    return kernels_.Bind(args);
  });
}

}  // namespace tandem::ops
