// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "schedules/program/program.h"

namespace tandem::schedules {

// Passes of one microbatch that follow each other on a stream, and that one captured graph could replay.
struct Segment {
  std::vector<int> instructions;  // ascending
  int num_waits = 0;              // of instructions outside: all of them would be waited for at its first one
  // Operands in rings, which are elsewhere in the next run. A graph knows fixed addresses alone: these would
  // be copied from or to a fixed place by instructions outside.
  int num_ring_operands = 0;
};

// The longest runs of passes of nodes in `scope` (by node) that follow each other on their stream without
// anything between them that the host or the device would have to look at: all are of one microbatch, none
// has a communicator or reads what the host reads, and what they wait for was issued before the first of
// them, as was every host wait. So a segment can wait at its first instruction for all that its instructions
// wait for; what waits for one of them would wait for its last. In the order of their first instructions.
std::vector<Segment> SegmentsOf(const Program& program, const std::vector<bool>& scope);

// How many graphs these segments need: segments with the same passes on the same addresses share one. Rings
// do not count, as operands in them are copied.
int CountGraphs(const Program& program, const std::vector<Segment>& segments);

}  // namespace tandem::schedules
