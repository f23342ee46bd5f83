// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "schedules/program/live_ranges.h"

namespace tandem::schedules {

// The addresses of the buffers of one region, from 0 on.
struct RegionLayout {
  std::vector<int64_t> begins;  // by buffer
  int64_t end = 0;
};

// Lays out `buffers`, with bytes[buffer] bytes each, so that two share bytes only if their live
// ranges allow it. Returns the best of several greedy layouts, or the first that ends within `enough`. The
// time is linear in the number of buffers and in how many are touched while one is in use. before[b] is
// another buffer whose address b must get, which `lives` must allow; -1: none. If `before` is empty, no
// buffer has one.
RegionLayout LayOutRegion(const LiveRanges& lives, const std::vector<BufferId>& buffers,
                          const std::vector<int64_t>& bytes, const std::vector<BufferId>& before,
                          int64_t enough);

// Whether any two buffers that share bytes in the layout may share them by their live ranges.
bool MayShareAsIn(const LiveRanges& lives, const std::vector<BufferId>& buffers,
                  const std::vector<int64_t>& bytes, const RegionLayout& layout);

}  // namespace tandem::schedules
