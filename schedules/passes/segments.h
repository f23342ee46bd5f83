// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "schedules/program/program.h"

namespace tandem::schedules {

// Segments: passes of nodes that follow each other on a stream and that one captured graph replays. A graph
// knows fixed addresses alone, and starts and ends as a whole.

// Whether a pass of that instruction may be in a segment, if its node may: it has no communicator, touches
// nothing on the host, which may look at it or change it at any time, and does not read the run's inputs.
bool MayBeReplayed(const Program& program, const Instruction& instruction);

// Marks the segments (Instruction::segment) of a program without waits but those of gathers, and moves the
// instructions of each directly behind its first. The longest runs on a stream of passes of nodes in
// `replayed` (by node) are segments that are of one microbatch, of which only the first has to wait for
// another stream, and of which another stream has to wait for the last alone: so that starting and ending as
// a whole delays nothing, but for gathers that wait for a reader of earlier ones, and have time. What their
// instructions access in rings, which are elsewhere in the next run, they access in locals instead; a Copy
// before the segment, or directly behind it, copies from or to the ring.
void MarkSegments(const std::vector<bool>& replayed, Program& program);

// Which locals have one address, so that a segment at microbatches m and m + period has one graph.
struct SharedAddresses {
  int period = 0;  // 0: the program has no segments
  // By buffer: the one that has its address before it, and is last accessed before it is first accessed, in
  // issue order; -1: none. Empty: of no buffer.
  std::vector<BufferId> before;
};

// With the shortest period in which no two buffers that would have one address are in use at once.
SharedAddresses ShareAddresses(const Program& program);

int CountSegments(const Program& program);

// How many graphs the program needs: segments with the same passes on the same addresses share one.
int CountGraphs(const Program& program);

// How many passes these graphs hold together.
int CountPassesOfGraphs(const Program& program);

}  // namespace tandem::schedules
