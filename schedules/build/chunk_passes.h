// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "schedules/build/schedule.h"

namespace tandem::schedules {

// What one chunk of a stage does for one microbatch in one direction.
struct ChunkPass {
  bool forward = true;
  int chunk = 0;
  int microbatch = 0;
};

// Their nodes' passes in that order, each with what it sends behind it. ahead: so many chunks' passes before
// its own, what it receives is received.
PassList PassesOf(const Outline& outline, const std::vector<ChunkPass>& chunks, int ahead);

}  // namespace tandem::schedules
