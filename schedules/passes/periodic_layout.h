#pragma once

#include <cstdint>
#include <vector>

#include "schedules/passes/region_layout.h"

namespace tandem::schedules {

// periodic_layout.cc. A step of many microbatches repeats itself: its buffers, in order of first touch, are
// like those one period before. One period is laid out as if it followed itself for ever, and every buffer
// lies where the one of its kind does there, if the order of accesses allows it; else, as at the step's start
// and end, in the lowest gap. buffers: in order of first touch. The layout ends at the largest number if the
// program does not repeat itself.
RegionLayout LayOutPeriodically(const AccessOrder& order, const std::vector<BufferId>& buffers,
                                const std::vector<int64_t>& bytes);

}  // namespace tandem::schedules
