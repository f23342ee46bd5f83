// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "schedules/program/program.h"
#include "schedules/simulate/timeline.h"

namespace tandem::schedules {

// Bytes by BufferKind. A buffer counts with Bytes::bound, which is what the arena reserves for it.
using BytesByKind = std::array<int64_t, kNumBufferKinds>;

int64_t Total(const BytesByKind& bytes);

// The memory in use from one moment until the next point.
struct MemoryPoint {
  int64_t ns = 0;
  BytesByKind locals{};
};

// The memory that one run of a program uses over time. A local buffer is in use from the start of its first
// access to the end of its last. The arena may be larger than the sum of persistent bytes and peak: it also
// holds buffers that another stream may still read as far as the program knows, alignment, and gaps between
// addresses.
struct MemoryCurve {
  BytesByKind persistent{};  // buffers in the arena that live as long as the job; rings with both elements
  std::vector<MemoryPoint> points;  // ascending, one for each change
  int peak = -1;                    // the first point with the most bytes; -1: the program has no locals
  int64_t peak_bytes = 0;           // bytes of locals at the peak
};

// Leaves out buffers in pinned host memory, which are not in the arena. Requires a time for every
// instruction.
MemoryCurve MemoryOverTime(const Program& program, const Timeline& timeline);

}  // namespace tandem::schedules
