// SPDX-License-Identifier: Apache-2.0
#include "ops/swiglu.h"

#include <ATen/core/Tensor.h>

#include "ops/device_kernels.h"
#include "ops/operations.h"
#include "ops/sparse_operations.h"
#include "ops/tensor_access.h"

namespace tandem::ops {

namespace {

// The place that says how many rows there are.
const int64_t* RowsThere(const at::Tensor& begins, DeviceKind on) {
  CheckElements("begins", begins, begins.numel(), on);
  return begins.const_data_ptr<int64_t>() + begins.numel() - 1;
}

}  // namespace

void Operations::SwiGlu(const at::Tensor& gate_up, at::Tensor& activated) const {
  sparse_.WeightedSwiGlu(/*begins=*/{}, gate_up, /*weights=*/{}, activated);
}

void Operations::SwiGluBackward(const at::Tensor& gate_up, const at::Tensor& grad_activated,
                                at::Tensor& grad_gate_up, at::Tensor& activated) const {
  at::Tensor no_weights;
  sparse_.WeightedSwiGluBackward(/*begins=*/{}, gate_up, /*weights=*/{}, grad_activated, grad_gate_up,
                                 activated, no_weights);
}

void SparseOperations::WeightedSwiGlu(const at::Tensor& begins, const at::Tensor& gate_up,
                                      const at::Tensor& weights, at::Tensor& activated) const {
  const DeviceKind on = kernels_.kind();
  const int64_t rows = activated.size(0);
  const int64_t inner = activated.size(1);
  CheckMatrix("gate_up", gate_up, rows, 2 * inner, on);
  CheckMatrix("activated", activated, rows, inner, on);
  TORCH_CHECK(begins.defined() == weights.defined(), "rows of experts come with weights, others without");
  if (weights.defined()) {
    CheckElements("weights", weights, rows, on);
  }
  WithElementType(gate_up, [&]<typename E>(E) {
    kernels_.Run(SwiGluArgs<E>{.gate_up = ElementsOf<E>(gate_up),
                               .weights = weights.defined() ? ElementsOf<Arithmetic<E>>(weights) : nullptr,
                               .rows_there = weights.defined() ? RowsThere(begins, on) : nullptr,
                               .rows = rows,
                               .inner = inner,
                               .activated = MutableElementsOf<E>(activated)});
  });
}

void SparseOperations::WeightedSwiGluBackward(const at::Tensor& begins, const at::Tensor& gate_up,
                                              const at::Tensor& weights, const at::Tensor& grad_activated,
                                              at::Tensor& grad_gate_up, at::Tensor& activated,
                                              at::Tensor& grad_weights) const {
  const DeviceKind on = kernels_.kind();
  const int64_t rows = grad_activated.size(0);
  const int64_t inner = grad_activated.size(1);
  CheckMatrix("gate_up", gate_up, rows, 2 * inner, on);
  CheckMatrix("grad_activated", grad_activated, rows, inner, on);
  CheckMatrix("grad_gate_up", grad_gate_up, rows, 2 * inner, on);
  CheckMatrix("activated", activated, rows, inner, on);
  TORCH_CHECK(begins.defined() == weights.defined(), "rows of experts come with weights, others without");
  if (weights.defined()) {
    CheckElements("weights", weights, rows, on);
    CheckElements("grad_weights", grad_weights, rows, on);
  }
  WithElementType(gate_up, [&]<typename E>(E) {
    using T = Arithmetic<E>;
    kernels_.Run(SwiGluBackwardArgs<E>{
        .gate_up = ElementsOf<E>(gate_up),
        .weights = weights.defined() ? ElementsOf<T>(weights) : nullptr,
        .rows_there = weights.defined() ? RowsThere(begins, on) : nullptr,
        .grad_activated = ElementsOf<E>(grad_activated),
        .rows = rows,
        .inner = inner,
        .grad_gate_up = MutableElementsOf<E>(grad_gate_up),
        .activated = MutableElementsOf<E>(activated),
        .grad_weights = weights.defined() ? MutableElementsOf<T>(grad_weights) : nullptr});
  });
}

}  // namespace tandem::ops
