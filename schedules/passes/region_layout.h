// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "schedules/program/access_order.h"

namespace tandem::schedules {

// The addresses of the buffers of one region, from 0 on.
struct RegionLayout {
  std::vector<int64_t> begins;  // by buffer
  int64_t end = 0;
};

// Lays out `buffers`, with bytes[buffer] bytes each, so that two share bytes only if the order of their
// accesses allows it. Returns the best of several greedy layouts, or the first that ends within `enough`. The
// time is linear in the number of buffers and in how many are touched while one is in use. before[b] is
// another buffer whose address b must get, which `order` must allow; -1: none. If `before` is empty, no
// buffer has one.
RegionLayout LayOutRegion(const AccessOrder& order, const std::vector<BufferId>& buffers,
                          const std::vector<int64_t>& bytes, const std::vector<BufferId>& before,
                          int64_t enough);

// Whether any two buffers that share bytes in the layout may share them by the order of their accesses.
bool MayShareAsIn(const AccessOrder& order, const std::vector<BufferId>& buffers,
                  const std::vector<int64_t>& bytes, const RegionLayout& layout);

}  // namespace tandem::schedules
