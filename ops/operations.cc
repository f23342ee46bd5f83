// SPDX-License-Identifier: Apache-2.0
#include "ops/operations.h"

#include <ATen/core/Tensor.h>

#include "ops/device_kernels.h"

namespace tandem::ops {

c10::Device Operations::device() const { return kernels_.device(); }

std::string Operations::kernels_digest() const { return kernels_.digest(); }

at::Tensor Operations::Constant(const at::Tensor& host) const { return host.to(device()); }

void Operations::Linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& residual,
                        at::Tensor& y, Workspace work) const {
  kernels_.Multiply({x, weight.t(), residual, y, work});
}

void Operations::LinearBackwardInput(const at::Tensor& grad_y, const at::Tensor& weight, bool add,
                                     at::Tensor& grad_x, Workspace work) const {
  kernels_.Multiply({grad_y, weight, add ? grad_x : at::Tensor(), grad_x, work});
}

void Operations::LinearBackwardWeight(const at::Tensor& grad_y, const at::Tensor& x, bool add,
                                      at::Tensor& grad_weight, Workspace work) const {
  kernels_.Multiply({grad_y.t(), x, add ? grad_weight : at::Tensor(), grad_weight, work});
}

}  // namespace tandem::ops
