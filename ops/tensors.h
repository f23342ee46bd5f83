// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ops/array.h"

namespace at {
class Tensor;
}

// Between arrays and LibTorch's tensors: for the few places that call LibTorch, and for tests and benchmarks,
// which so pass tensors to operations.
namespace tandem::ops {

template <>
struct ArrayOf<at::Tensor> {
  // A view; not defined where the tensor is not. Throws std::invalid_argument for another type of elements,
  // and for more than two dims that are not contiguous.
  static Array Of(const at::Tensor& tensor);
};

// A view [rows, columns], on the current GPU where the array is on one.
at::Tensor TensorOf(const Array& array);

}  // namespace tandem::ops
