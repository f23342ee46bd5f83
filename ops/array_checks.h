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

// Calls body(T{}) with the type of the elements if it is one of statistics: float or double. Throws for
// bfloat16.
template <typename Body>
auto WithStatisticsType(const Array& array, const Body& body) {
  Check(array.type != ElementKind::kBf16,
        "routers and their probabilities must be of float32 or float64, not bfloat16");
  return array.type == ElementKind::kDouble ? body(double{}) : body(float{});
}

template <typename E>
inline constexpr ElementKind kElementKind = std::is_same_v<E, float>     ? ElementKind::kFloat
                                            : std::is_same_v<E, double>  ? ElementKind::kDouble
                                            : std::is_same_v<E, Bf16>    ? ElementKind::kBf16
                                            : std::is_same_v<E, int64_t> ? ElementKind::kInt64
                                                                         : ElementKind::kByte;

// The address of the first element; null for an undefined array. Throws an error that begins with `name`
// unless the elements are of type E.
template <typename E>
E* ElementsOf(const Array& array, const char* name = "an array") {
  Check(!array.defined() || array.type == kElementKind<E>, name, " must have elements of ",
        ToText(kElementKind<E>), ", not ", array.shape());
  return static_cast<E*>(array.begin);
}

// Throws an error that begins with `name` unless the array is a contiguous matrix of that size on that
// device.
void CheckMatrix(const char* name, const Array& array, int64_t rows, int64_t columns, DeviceKind device);

// Throws an error that begins with `name` unless the array is contiguous, has that many elements in any
// shape, and is on that device.
void CheckElements(const char* name, const Array& array, int64_t elements, DeviceKind device);

// Throws an error that begins with `name` unless the array is a matrix of that size with adjacent columns on
// that device.
void CheckRows(const char* name, const Array& array, int64_t rows, int64_t columns, DeviceKind device);

// Check an operand, also that its elements are of type E, and return the address of its first element.
template <typename E>
E* MatrixOf(const char* name, const Array& array, int64_t rows, int64_t columns, DeviceKind device) {
  CheckMatrix(name, array, rows, columns, device);
  return ElementsOf<E>(array, name);
}
template <typename E>
E* ElementsOf(const char* name, const Array& array, int64_t elements, DeviceKind device) {
  CheckElements(name, array, elements, device);
  return ElementsOf<E>(array, name);
}
// Null if the array is undefined.
template <typename E>
E* ElementsIfGiven(const char* name, const Array& array, int64_t elements, DeviceKind device) {
  return array.defined() ? ElementsOf<E>(name, array, elements, device) : nullptr;
}
template <typename E>
E* RowsOf(const char* name, const Array& array, int64_t rows, int64_t columns, DeviceKind device) {
  CheckRows(name, array, rows, columns, device);
  return ElementsOf<E>(array, name);
}

// Sets the gradient of a weight in the arguments: args.rounded if both are bfloat16, otherwise
// args.grad_weight.
template <template <typename> typename Args, typename E>
void SetGradient(const Array& weight, DeviceKind device, Args<E>& args) {
  if (std::is_same_v<E, Bf16> && weight.type == ElementKind::kBf16) {
    args.rounded = MatrixOf<E>("grad_weight", weight, weight.rows, weight.columns, device);
  } else {
    args.grad_weight = MatrixOf<Arithmetic<E>>("grad_weight", weight, weight.rows, weight.columns, device);
  }
}

// Throws unless the array is int64 [B, S] with adjacent columns on that device.
Tokens TokensOf(const Array& tokens, DeviceKind device);

// Throws unless `documents` is undefined, or int64 [B, S] with adjacent columns on that device.
DocumentStarts DocumentsOf(const Array& documents, int64_t sequences, int64_t length, DeviceKind device);

// The address of the last element of `begins`, the number of all experts' rows; null if `begins` is
// undefined.
const int64_t* RowsThere(const Array& begins, DeviceKind device);

// Throws an error that begins with `operation` if GPUs have no kernels for so many experts or ranks.
void CheckExperts(const char* operation, int64_t experts, DeviceKind device);

// Returns `work`. Throws an error that begins with `operation` unless it has that many bytes.
Workspace Checked(const char* operation, Workspace work, int64_t bytes);

}  // namespace tandem::ops
