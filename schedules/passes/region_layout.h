// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "schedules/program/access_order.h"

namespace tandem::schedules {

// Where the buffers of one region lie, from 0 on.
struct RegionLayout {
  std::vector<int64_t> begins;  // by buffer
  int64_t end = 0;
};

// Lays out `buffers`, of bytes[buffer] bytes each, so that two share bytes only if the order of their
// accesses allows it: the best of several greedy layouts, or the first that ends within `enough`. Linear in
// the number of buffers and in how many are touched while one is in use. before: by buffer, another one whose
// address it gets, which has to allow that; -1: none. Empty: of no buffer.
RegionLayout LayOutRegion(const AccessOrder& order, const std::vector<BufferId>& buffers,
                          const std::vector<int64_t>& bytes, const std::vector<BufferId>& before,
                          int64_t enough);

// True if the layout is one that LayOutRegion may return.
bool MayShareAsIn(const AccessOrder& order, const std::vector<BufferId>& buffers,
                  const std::vector<int64_t>& bytes, const RegionLayout& layout);

}  // namespace tandem::schedules
