// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <type_traits>

#include "device/bf16.h"
#include "ops/device_kind.h"
#include "ops/tokens.h"
#include "ops/workspace.h"

namespace at {
class Tensor;
}

// How the operations look at their tensors. Private to ops/.
namespace tandem::ops {

using device::Arithmetic;
using device::Bf16;

enum class ElementKind { kFloat, kDouble, kBf16 };

// Throws for any other type of elements.
ElementKind ElementKindOf(const at::Tensor& tensor);

[[noreturn]] void ThrowNoStatistics();

// Calls body(E{}) with the type of the elements in memory: float, double or Bf16.
template <typename Body>
void WithElementType(const at::Tensor& tensor, const Body& body) {
  switch (ElementKindOf(tensor)) {
    case ElementKind::kFloat:
      return body(float{});
    case ElementKind::kDouble:
      return body(double{});
    case ElementKind::kBf16:
      return body(Bf16{});
  }
}

// The same with what statistics are of, float or double; throws for bfloat16.
template <typename Body>
void WithStatisticsType(const at::Tensor& tensor, const Body& body) {
  WithElementType(tensor, [&]<typename T>(T) {
    if constexpr (std::is_floating_point_v<T>) {
      body(T{});
    } else {
      ThrowNoStatistics();
    }
  });
}

// Where the elements begin. Throw unless they are of type E.
template <typename E>
const E* ElementsOf(const at::Tensor& tensor);
template <typename E>
E* MutableElementsOf(at::Tensor& tensor);
template <>
const Bf16* ElementsOf(const at::Tensor& tensor);
template <>
Bf16* MutableElementsOf(at::Tensor& tensor);

// Throws, naming `name`, unless it is a contiguous matrix of that size on that device.
void CheckMatrix(const char* name, const at::Tensor& tensor, int64_t rows, int64_t columns,
                 DeviceKind device);

// Throws, naming `name`, unless it is contiguous, of that many elements, any shape, on that device.
void CheckElements(const char* name, const at::Tensor& tensor, int64_t elements, DeviceKind device);

// Throws, naming `name`, unless it is a matrix with adjacent columns on that device.
void CheckRows(const char* name, const at::Tensor& tensor, DeviceKind device);

// Throws unless they are int64 [B, S] with adjacent columns on that device. Valid as long as the tensor.
Tokens TokensOf(const at::Tensor& tokens, DeviceKind device);

// Throws, naming `operation`, where GPUs have no kernels for so many experts, or ranks.
void CheckExperts(const char* operation, int64_t experts, DeviceKind device);

// Throws, naming `operation`, unless that many bytes are there.
void CheckWork(const char* operation, Workspace work, int64_t bytes);

}  // namespace tandem::ops
