// SPDX-License-Identifier: Apache-2.0
#include "ops/grouped_linear.h"

#include <ATen/core/Tensor.h>

#include <type_traits>

#include "ops/device_kernels.h"
#include "ops/sparse_operations.h"
#include "ops/sparse_work.h"
#include "ops/tensor_access.h"

namespace tandem::ops {
namespace {

// Of the experts' weights, which lie one after another.
struct Experts {
  Experts(const at::Tensor& begins, const at::Tensor& weight, DeviceKind on)
      : begins(begins.const_data_ptr<int64_t>()),
        on_host(begins.is_cpu()),
        count(begins.numel() - 1),
        inputs(weight.size(1)) {
    CheckElements("begins", begins, count + 1, on_host ? DeviceKind::kCpu : on);
    TORCH_CHECK(count > 0 && weight.size(0) % count == 0, "the weights of ", count,
                " experts lie one after another, not ", weight.sizes());
    outputs = weight.size(0) / count;
    CheckMatrix("weight", weight, count * outputs, inputs, on);
  }
  const int64_t* begins;
  bool on_host;
  int64_t count;
  int64_t inputs;
  int64_t outputs;  // of each
};

}  // namespace

void SparseOperations::GroupedLinear(const at::Tensor& begins, const at::Tensor& x, const at::Tensor& weight,
                                     at::Tensor& y, Workspace work) const {
  const DeviceKind on = kernels_.kind();
  const Experts experts(begins, weight, on);
  CheckMatrix("x", x, x.size(0), experts.inputs, on);
  CheckMatrix("y", y, x.size(0), experts.outputs, on);
  CheckWork("GroupedLinear", work, GroupedWorkBytes(on, x.element_size(), experts.on_host));
  WithElementType(x, [&]<typename E>(E) {
    kernels_.Run(GroupedLinearArgs<E>{.begins = experts.begins,
                                      .on_host = experts.on_host,
                                      .experts = experts.count,
                                      .rows = x.size(0),
                                      .x = ElementsOf<E>(x),
                                      .weight = ElementsOf<E>(weight),
                                      .inputs = experts.inputs,
                                      .outputs = experts.outputs,
                                      .y = MutableElementsOf<E>(y),
                                      .work = work});
  });
}

void SparseOperations::GroupedLinearBackwardInput(const at::Tensor& begins, const at::Tensor& grad_y,
                                                  const at::Tensor& weight, at::Tensor& grad_x,
                                                  Workspace work) const {
  const DeviceKind on = kernels_.kind();
  const Experts experts(begins, weight, on);
  CheckMatrix("grad_y", grad_y, grad_y.size(0), experts.outputs, on);
  CheckMatrix("grad_x", grad_x, grad_y.size(0), experts.inputs, on);
  CheckWork("GroupedLinearBackwardInput", work, GroupedWorkBytes(on, grad_y.element_size(), experts.on_host));
  WithElementType(grad_y, [&]<typename E>(E) {
    kernels_.Run(GroupedLinearBackwardInputArgs<E>{.begins = experts.begins,
                                                   .on_host = experts.on_host,
                                                   .experts = experts.count,
                                                   .rows = grad_y.size(0),
                                                   .grad_y = ElementsOf<E>(grad_y),
                                                   .weight = ElementsOf<E>(weight),
                                                   .inputs = experts.inputs,
                                                   .outputs = experts.outputs,
                                                   .grad_x = MutableElementsOf<E>(grad_x),
                                                   .work = work});
  });
}

void SparseOperations::GroupedLinearBackwardWeight(const at::Tensor& begins, const at::Tensor& grad_y,
                                                   const at::Tensor& x, bool add, at::Tensor& grad_weight,
                                                   Workspace work) const {
  const DeviceKind on = kernels_.kind();
  const Experts experts(begins, grad_weight, on);
  CheckMatrix("grad_y", grad_y, x.size(0), experts.outputs, on);
  CheckMatrix("x", x, x.size(0), experts.inputs, on);
  CheckWork("GroupedLinearBackwardWeight", work, GroupedWorkBytes(on, x.element_size(), experts.on_host));
  WithElementType(x, [&]<typename E>(E) {
    GroupedLinearBackwardWeightArgs<E> args{.begins = experts.begins,
                                            .on_host = experts.on_host,
                                            .experts = experts.count,
                                            .rows = x.size(0),
                                            .grad_y = ElementsOf<E>(grad_y),
                                            .x = ElementsOf<E>(x),
                                            .inputs = experts.inputs,
                                            .outputs = experts.outputs,
                                            .add = add,
                                            .grad_weight = nullptr,
                                            .rounded = nullptr,
                                            .work = work};
    if (std::is_same_v<E, Bf16> && grad_weight.scalar_type() == at::kBFloat16) {
      args.rounded = MutableElementsOf<E>(grad_weight);
    } else {
      args.grad_weight = MutableElementsOf<Arithmetic<E>>(grad_weight);
    }
    kernels_.Run(args);
  });
}

}  // namespace tandem::ops
