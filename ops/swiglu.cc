#include "ops/swiglu.h"

#include <ATen/core/Tensor.h>

#include "ops/cpu/kernels.h"
#include "ops/tensor_access.h"

namespace tandem::ops {

void SwiGlu(const at::Tensor& gate_up, at::Tensor& activated) {
  const int64_t rows = activated.size(0);
  const int64_t inner = activated.size(1);
  CheckMatrix("gate_up", gate_up, rows, 2 * inner);
  CheckMatrix("activated", activated, rows, inner);
  WithElementType(gate_up, [&]<typename E>(E) {
    cpu::BestKernels<E>().swiglu(ElementsOf<E>(gate_up), rows, inner, MutableElementsOf<E>(activated));
  });
}

void SwiGluBackward(const at::Tensor& gate_up, const at::Tensor& grad_activated, at::Tensor& grad_gate_up,
                    at::Tensor& activated) {
  const int64_t rows = grad_activated.size(0);
  const int64_t inner = grad_activated.size(1);
  CheckMatrix("gate_up", gate_up, rows, 2 * inner);
  CheckMatrix("grad_activated", grad_activated, rows, inner);
  CheckMatrix("grad_gate_up", grad_gate_up, rows, 2 * inner);
  CheckMatrix("activated", activated, rows, inner);
  WithElementType(gate_up, [&]<typename E>(E) {
    cpu::BestKernels<E>().swiglu_backward(ElementsOf<E>(gate_up), ElementsOf<E>(grad_activated), rows, inner,
                                          MutableElementsOf<E>(grad_gate_up),
                                          MutableElementsOf<E>(activated));
  });
}

}  // namespace tandem::ops
