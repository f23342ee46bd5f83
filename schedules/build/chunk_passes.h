// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "schedules/build/schedule.h"

namespace tandem::schedules {

// The work of one chunk of a stage for one microbatch in one direction.
struct ChunkPass {
  bool forward = true;
  int chunk = 0;
  int microbatch = 0;
};

// Lists the passes of the chunks' nodes in the order of `chunks`. Each chunk pass is followed by what it
// sends. What it receives is received `ahead` chunk passes earlier.
PassList PassesOf(const Outline& outline, const std::vector<ChunkPass>& chunks, int ahead);

}  // namespace tandem::schedules
