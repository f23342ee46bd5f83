// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ops/array.h"

namespace at {
class Tensor;
}

// Conversions between arrays and LibTorch's tensors, for the few places that call LibTorch, and for tests and
// benchmarks that pass tensors to operations.
namespace tandem::ops {

template <>
struct ArrayOf<at::Tensor> {
  // Views a tensor; undefined if the tensor is. Throws std::invalid_argument for other element types, and for
  // more than two dims that are not contiguous.
  static Array Of(const at::Tensor& tensor);
};

// Views an array as a tensor [rows, columns], on the current GPU if the array is on one.
at::Tensor TensorOf(const Array& array);

}  // namespace tandem::ops
