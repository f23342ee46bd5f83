// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "ops/router_config.h"
#include "ops/workspace.h"

namespace tandem::ops {

// Drops those choices whose expert has no room for them. `ranked` is [T, k], as Route chose. Overwrites
// `chosen`, [T, k]: the same choices, with -1 for dropped ones, whose probabilities become 0; other
// probabilities do not change. If several probabilities equal that of the last choice with room, the first of
// them stay. Dropped choices have no gradient, but their experts' scores still count in the divisor of the
// other probabilities. Each index is less than `experts`. `slots` is T k.
template <typename T>
struct DropOverflowArgs {
  static constexpr const char* kName = "DropOverflow";
  DropPolicy policy;
  int64_t capacity;
  int64_t experts;
  const int64_t* ranked;
  int64_t slots;
  int64_t* chosen;
  T* probabilities;
  Workspace work;  // of DropWorkBytes (sparse_work.h)
};

}  // namespace tandem::ops
