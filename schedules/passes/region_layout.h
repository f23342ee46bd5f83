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

// region_layout.cc. Lays out `buffers`, of bytes[buffer] bytes each, so that two share bytes only if the
// order of their accesses allows it. Tries several orders of placement, takes the lowest gap for each buffer,
// and keeps the layout that ends lowest; it stops at one that ends within `enough`. Larger programs are laid
// out a window of their buffers after the other, so that the time is linear.
RegionLayout LayOutRegion(const AccessOrder& order, const std::vector<BufferId>& buffers,
                          const std::vector<int64_t>& bytes, int64_t enough);

// True if the layout is one that LayOutRegion may return.
bool MayShareAsIn(const AccessOrder& order, const std::vector<BufferId>& buffers,
                  const std::vector<int64_t>& bytes, const RegionLayout& layout);

}  // namespace tandem::schedules
