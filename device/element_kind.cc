// SPDX-License-Identifier: Apache-2.0
#include "device/element_kind.h"

namespace tandem::device {

int64_t BytesOf(ElementKind kind) {
  static constexpr int64_t kBytes[] = {0, 4, 8, 2, 8, 1};
  return kBytes[static_cast<int>(kind)];
}

const char* ToText(ElementKind kind) {
  static constexpr const char* kNames[] = {"nothing", "float32", "float64", "bfloat16", "int64", "byte"};
  return kNames[static_cast<int>(kind)];
}

}  // namespace tandem::device
