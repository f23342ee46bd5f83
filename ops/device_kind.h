// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace tandem::ops {

// The kind of device that operations compute on. Operations have the same operands on every kind, except that
// the size of work memory differs.
enum class DeviceKind : uint8_t { kCpu, kGpu };

}  // namespace tandem::ops
