// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace tandem::ops {

// The kind of device that operations compute on. Operands are the same on every kind, apart from the memory
// that they are in. The size of work memory differs.
enum class DeviceKind : uint8_t { kCpu, kGpu };

}  // namespace tandem::ops
