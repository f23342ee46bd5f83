#pragma once

#include <cstdint>

#include "schedules/program/program.h"

namespace tandem::schedules {

// Bytes of a program's locals that are alive at once, at most: where an instruction first touches
// buffers, these and every earlier buffer with an access that it does not know to have ended, whatever other
// streams know. This is what memory waits keep within the budget; the arena holds it and gaps between
// addresses. Sizes are rounded up to the alignment; buffers in pinned host memory do not count. Requires
// waits that point to lower positions.
int64_t MostBytesAlive(const Program& program);

}  // namespace tandem::schedules
