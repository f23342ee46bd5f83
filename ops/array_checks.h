// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <stdexcept>
#include <type_traits>

#include "absl/strings/str_cat.h"
#include "ops/array.h"
#include "ops/attention_shape.h"
#include "ops/call.h"
#include "ops/tokens.h"
#include "ops/workspace.h"

// Checks of arrays when operations are bound to them. Private to ops/. They throw std::invalid_argument, and
// std::out_of_range for an index outside its range.
namespace tandem::ops {

template <typename... Parts>
void Check(bool holds, const Parts&... parts) {
  if (!holds) {
    throw std::invalid_argument(absl::StrCat(parts...));
  }
}
template <typename... Parts>
void CheckIndex(bool holds, const Parts&... parts) {
  if (!holds) {
    throw std::out_of_range(absl::StrCat(parts...));
  }
}

const char* OnThe(DeviceKind device);  // "on a GPU"

// Calls body(E{}) with the type of the elements in memory: float, double or Bf16. Throws for any other.
template <typename Body>
auto WithElementType(const Array& array, const Body& body) {
  switch (array.type) {
    case ElementKind::kFloat:
      return body(float{});
    case ElementKind::kDouble:
      return body(double{});
    case ElementKind::kBf16:
      return body(Bf16{});
    default:
      throw std::invalid_argument(
          absl::StrCat("operations compute in float32, float64 or bfloat16, not in ", ToText(array.type)));
  }
}

// Does the same with the type of statistics, float or double. Throws for bfloat16.
template <typename Body>
auto WithStatisticsType(const Array& array, const Body& body) {
  Check(array.type != ElementKind::kBf16,
        "routers and their probabilities are of float32 or float64, not bfloat16");
  return array.type == ElementKind::kDouble ? body(double{}) : body(float{});
}

template <typename E>
inline constexpr ElementKind kElementKind = std::is_same_v<E, float>     ? ElementKind::kFloat
                                            : std::is_same_v<E, double>  ? ElementKind::kDouble
                                            : std::is_same_v<E, Bf16>    ? ElementKind::kBf16
                                            : std::is_same_v<E, int64_t> ? ElementKind::kInt64
                                                                         : ElementKind::kByte;

// The address of the first element; null for an undefined array. Throws unless the elements are of type E.
template <typename E>
E* ElementsOf(const Array& array) {
  Check(!array.defined() || array.type == kElementKind<E>, "elements must be ", ToText(kElementKind<E>),
        ", not ", array.shape());
  return static_cast<E*>(array.begin);
}

// Throws, with `name`, unless the array is a contiguous matrix of that size on that device.
void CheckMatrix(const char* name, const Array& array, int64_t rows, int64_t columns, DeviceKind device);

// Throws, with `name`, unless the array is contiguous, has that many elements in any shape, and is on that
// device.
void CheckElements(const char* name, const Array& array, int64_t elements, DeviceKind device);

// Throws, with `name`, unless the array is a matrix with adjacent columns on that device.
void CheckRows(const char* name, const Array& array, DeviceKind device);

// Throws unless the array is int64 [B, S] with adjacent columns on that device.
Tokens TokensOf(const Array& tokens, DeviceKind device);

// Throws unless `documents` is undefined, or int64 [B, S] with adjacent columns on that device.
DocumentStarts DocumentsOf(const Array& documents, int64_t sequences, int64_t length, DeviceKind device);

// The last of the begins of experts' rows, which says how many rows there are; null for undefined ones.
const int64_t* RowsThere(const Array& begins, DeviceKind device);

// Throws, with `operation`, if GPUs have no kernels for so many experts or ranks.
void CheckExperts(const char* operation, int64_t experts, DeviceKind device);

// Throws, with `operation`, unless the work memory has that many bytes.
void CheckWork(const char* operation, Workspace work, int64_t bytes);

}  // namespace tandem::ops
