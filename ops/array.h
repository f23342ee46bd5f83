// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "device/bf16.h"
#include "device/element_kind.h"
#include "device/memory.h"
#include "ops/device_kind.h"

namespace tandem::ops {

using device::Arithmetic;
using device::Bf16;
using device::BytesOf;
using device::ElementKind;
using device::ToText;

// Converts something else to an Array; ops/tensors.h does so for LibTorch's tensors.
template <typename From>
struct ArrayOf;

// A view of a matrix; a vector is a matrix of one column. The view does not own its memory, which must stay
// where it is as long as an operation is bound to it. A tensor with more dims has its first dim as rows and
// all others as columns.
struct Array {
  Array() = default;  // undefined: an operand that is absent
  // Views a contiguous matrix.
  Array(const void* begin, ElementKind type, DeviceKind on, int64_t rows, int64_t columns)
      : begin(const_cast<void*>(begin)),
        type(type),
        on(on),
        rows(rows),
        columns(columns),
        row_stride(columns) {}
  template <typename From>
    requires requires(const From& from) { ArrayOf<From>::Of(from); }
  Array(const From& from)
      : Array(ArrayOf<From>::Of(from)) {}  // NOLINT: implicit, so that tensors are accepted as arrays

  bool defined() const { return type != ElementKind::kNone; }
  int64_t elements() const { return rows * columns; }
  // Requires a contiguous matrix.
  int64_t bytes() const { return elements() * BytesOf(type); }
  device::Memory memory() const { return {.begin = static_cast<char*>(begin), .bytes = bytes()}; }
  bool contiguous() const;
  std::string shape() const;  // "float32 [2, 3] on the CPU"

  // Views of the same memory.
  Array Transposed() const;
  Array Rows(int64_t first, int64_t count) const;
  Array Columns(int64_t first, int64_t count) const;
  Array Reshaped(int64_t rows, int64_t columns) const;  // requires a contiguous matrix

  void* begin = nullptr;
  ElementKind type = ElementKind::kNone;
  DeviceKind on = DeviceKind::kCpu;  // the device whose memory it is
  int64_t rows = 0;
  int64_t columns = 0;
  int64_t row_stride = 0;  // in elements
  int64_t column_stride = 1;
};

}  // namespace tandem::ops
