#pragma once

#include <cstdint>
#include <vector>

#include "schedules/passes/access_order.h"

namespace tandem::schedules {

// Where the buffers of one region lie, from 0 on.
struct RegionLayout {
  std::vector<int64_t> begins;  // by buffer
  int64_t end = 0;
};

// Lays out `buffers`, of bytes[buffer] bytes each, so that two share bytes only if the order of their
// accesses allows it: the best of several layouts, or the first that ends within `enough`. The time is
// quadratic up to some thousand buffers, and linear above.
RegionLayout LayOutRegion(const AccessOrder& order, std::vector<BufferId> buffers,
                          const std::vector<int64_t>& bytes, int64_t enough);

// True if the layout is one that LayOutRegion may return.
bool MayShareAsIn(const AccessOrder& order, std::vector<BufferId> buffers, const std::vector<int64_t>& bytes,
                  const RegionLayout& layout);

}  // namespace tandem::schedules
