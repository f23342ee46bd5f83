// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "ops/router_config.h"
#include "ops/workspace.h"

namespace tandem::ops {

// Drops choices of experts that have no room for them. ranked: [T, k], as Route chose. Overwrites chosen,
// [T, k]: the same, or -1 where the choice is dropped; there probabilities become 0, the others stay as they
// are. Of the probabilities that equal that of the last choice with room, the first stay. Dropped choices
// have no gradient, but the scores of those experts still count in what the others' probabilities were
// divided by. experts: all indices are below it. slots: T k.
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
  Workspace work;  // DropWorkBytes (sparse_work.h)
};

}  // namespace tandem::ops
