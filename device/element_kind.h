// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace tandem::device {

// The type of the elements that memory holds.
enum class ElementKind : uint8_t { kNone, kFloat, kDouble, kBf16, kInt64, kByte };

int64_t BytesOf(ElementKind kind);
const char* ToText(ElementKind kind);  // "float32"

}  // namespace tandem::device
