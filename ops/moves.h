// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "device/bf16.h"
#include "ops/array.h"

namespace tandem::ops {

// to = from. Rows are `..._stride` elements apart, and columns adjacent. If the types differ, each element is
// rounded to the nearest number (to bfloat16 by way of float); if they are equal, bytes are copied.
// with_host: one of the two is in pinned memory of the host, and both are contiguous and of the same type.
struct CopyArgs {
  static constexpr const char* kName = "Copy";
  const void* from;
  ElementKind from_type;
  int64_t from_stride;
  int64_t rows;
  int64_t columns;
  void* to;
  ElementKind to_type;
  int64_t to_stride;
  bool with_host;
};

// y += x.
template <typename E>
struct AddArgs {
  static constexpr const char* kName = "Add";
  const E* x;
  int64_t elements;
  E* y;
};

struct FillArgs {
  static constexpr const char* kName = "Fill";
  uint8_t byte;
  int64_t bytes;
  void* to;
};

}  // namespace tandem::ops
