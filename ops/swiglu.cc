// SPDX-License-Identifier: Apache-2.0
#include "ops/swiglu.h"

#include <ATen/core/Tensor.h>

#include "ops/cpu/kernels.h"
#include "ops/tensor_access.h"

namespace tandem::ops {

namespace {

// weights: null: ones.
void Forward(const at::Tensor& gate_up, const at::Tensor* weights, at::Tensor& activated) {
  const int64_t rows = activated.size(0);
  const int64_t inner = activated.size(1);
  CheckMatrix("gate_up", gate_up, rows, 2 * inner);
  CheckMatrix("activated", activated, rows, inner);
  if (weights != nullptr) {
    CheckElements("weights", *weights, rows);
  }
  WithElementType(gate_up, [&]<typename E>(E) {
    const auto* const row_weights = weights == nullptr ? nullptr : ElementsOf<Arithmetic<E>>(*weights);
    cpu::BestKernels<E>().swiglu(ElementsOf<E>(gate_up), row_weights, rows, inner,
                                 MutableElementsOf<E>(activated));
  });
}

// weights and grad_weights: both null, or neither.
void Backward(const at::Tensor& gate_up, const at::Tensor* weights, const at::Tensor& grad_activated,
              at::Tensor& grad_gate_up, at::Tensor& activated, at::Tensor* grad_weights) {
  const int64_t rows = grad_activated.size(0);
  const int64_t inner = grad_activated.size(1);
  CheckMatrix("gate_up", gate_up, rows, 2 * inner);
  CheckMatrix("grad_activated", grad_activated, rows, inner);
  CheckMatrix("grad_gate_up", grad_gate_up, rows, 2 * inner);
  CheckMatrix("activated", activated, rows, inner);
  if (weights != nullptr) {
    CheckElements("weights", *weights, rows);
    CheckElements("grad_weights", *grad_weights, rows);
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

void SwiGlu(const at::Tensor& gate_up, at::Tensor& activated) { Forward(gate_up, nullptr, activated); }

void SwiGluBackward(const at::Tensor& gate_up, const at::Tensor& grad_activated, at::Tensor& grad_gate_up,
                    at::Tensor& activated) {
  Backward(gate_up, nullptr, grad_activated, grad_gate_up, activated, nullptr);
}

void WeightedSwiGlu(const at::Tensor& gate_up, const at::Tensor& weights, at::Tensor& activated) {
  Forward(gate_up, &weights, activated);
}

void WeightedSwiGluBackward(const at::Tensor& gate_up, const at::Tensor& weights,
                            const at::Tensor& grad_activated, at::Tensor& grad_gate_up, at::Tensor& activated,
                            at::Tensor& grad_weights) {
  Backward(gate_up, &weights, grad_activated, grad_gate_up, activated, &grad_weights);
}

}  // namespace tandem::ops
