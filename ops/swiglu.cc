// SPDX-License-Identifier: Apache-2.0
#include "ops/swiglu.h"

#include <ATen/core/Tensor.h>

#include "ops/cpu/kernels.h"
#include "ops/tensor_access.h"

namespace tandem::ops {

namespace {

// The rows that `begins` says there are, of `rows`.
int64_t RowsOf(const at::Tensor& begins, int64_t rows) {
  CheckElements("begins", begins, begins.numel());
  const int64_t there = begins.const_data_ptr<int64_t>()[begins.numel() - 1];
  TORCH_CHECK(there >= 0 && there <= rows, "there are ", rows, " rows, not ", there);
  return there;
}

// Of the first `rows`. weights: null: ones.
void Forward(int64_t rows, const at::Tensor& gate_up, const at::Tensor* weights, at::Tensor& activated) {
  const int64_t bound = activated.size(0);
  const int64_t inner = activated.size(1);
  CheckMatrix("gate_up", gate_up, bound, 2 * inner);
  CheckMatrix("activated", activated, bound, inner);
  if (weights != nullptr) {
    CheckElements("weights", *weights, bound);
  }
  WithElementType(gate_up, [&]<typename E>(E) {
    const auto* const row_weights = weights == nullptr ? nullptr : ElementsOf<Arithmetic<E>>(*weights);
    cpu::BestKernels<E>().swiglu(ElementsOf<E>(gate_up), row_weights, rows, inner,
                                 MutableElementsOf<E>(activated));
  });
}

// weights and grad_weights: both null, or neither.
void Backward(int64_t rows, const at::Tensor& gate_up, const at::Tensor* weights,
              const at::Tensor& grad_activated, at::Tensor& grad_gate_up, at::Tensor& activated,
              at::Tensor* grad_weights) {
  const int64_t bound = grad_activated.size(0);
  const int64_t inner = grad_activated.size(1);
  CheckMatrix("gate_up", gate_up, bound, 2 * inner);
  CheckMatrix("grad_activated", grad_activated, bound, inner);
  CheckMatrix("grad_gate_up", grad_gate_up, bound, 2 * inner);
  CheckMatrix("activated", activated, bound, inner);
  if (weights != nullptr) {
    CheckElements("weights", *weights, bound);
    CheckElements("grad_weights", *grad_weights, bound);
  }
  WithElementType(gate_up, [&]<typename E>(E) {
    using T = Arithmetic<E>;
    cpu::BestKernels<E>().swiglu_backward(
        ElementsOf<E>(gate_up), weights == nullptr ? nullptr : ElementsOf<T>(*weights),
        ElementsOf<E>(grad_activated), rows, inner, MutableElementsOf<E>(grad_gate_up),
        MutableElementsOf<E>(activated), weights == nullptr ? nullptr : MutableElementsOf<T>(*grad_weights));
  });
}

}  // namespace

void SwiGlu(const at::Tensor& gate_up, at::Tensor& activated) {
  Forward(activated.size(0), gate_up, nullptr, activated);
}

void SwiGluBackward(const at::Tensor& gate_up, const at::Tensor& grad_activated, at::Tensor& grad_gate_up,
                    at::Tensor& activated) {
  Backward(grad_activated.size(0), gate_up, nullptr, grad_activated, grad_gate_up, activated, nullptr);
}

void WeightedSwiGlu(const at::Tensor& begins, const at::Tensor& gate_up, const at::Tensor& weights,
                    at::Tensor& activated) {
  Forward(RowsOf(begins, activated.size(0)), gate_up, &weights, activated);
}

void WeightedSwiGluBackward(const at::Tensor& begins, const at::Tensor& gate_up, const at::Tensor& weights,
                            const at::Tensor& grad_activated, at::Tensor& grad_gate_up, at::Tensor& activated,
                            at::Tensor& grad_weights) {
  Backward(RowsOf(begins, grad_activated.size(0)), gate_up, &weights, grad_activated, grad_gate_up, activated,
           &grad_weights);
}

}  // namespace tandem::ops
