// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace tandem::ops {

// Where operations compute. Their operands are the same on every kind of device, but for the memory that they
// lie in; the work memory that they need is not.
enum class DeviceKind : uint8_t { kCpu, kGpu };

}  // namespace tandem::ops
