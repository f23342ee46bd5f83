#pragma once

#include <cstdint>

namespace tandem::ops {

// What one matrix product of operations.h may use of memory beside its operands, in bytes, on any device.
// LibTorch's products keep their own, outside the arena.
inline constexpr int64_t kLinearWorkBytes = 0;

}  // namespace tandem::ops
