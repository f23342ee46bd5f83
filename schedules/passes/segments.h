// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "schedules/program/program.h"

namespace tandem::schedules {

// Segments are passes of nodes that follow each other on a stream and that one captured graph replays. A
// graph knows only fixed addresses, and starts and ends as a whole.

// Whether the instruction may be in a segment if its node may. It must have no communicator, must not touch
// host memory, which may be read or changed at any time, and must not read the run's inputs.
bool MayBeReplayed(const Program& program, const Instruction& instruction);

// Marks the segments (Instruction::segment) of a program that has only the waits of gathers, and moves the
// instructions of each segment directly behind its first.
//
// A segment is a run, as long as possible, of passes on one stream and of one microbatch, whose nodes are in
// `replayed` (by node). Only its first pass may have to wait for another stream, and other streams may have
// to wait only for its last, so that nothing is delayed because the segment starts and ends as a whole.
// Gathers that wait for a reader of an earlier gather are an exception; they have time.
//
// Elements of rings are elsewhere in the next run. The instructions of a segment access locals instead, and a
// Copy before or directly behind the segment copies from or to the ring.
void MarkSegments(const std::vector<bool>& replayed, Program& program);

// Which locals have the same address, so that a segment at microbatches m and m + period needs one graph.
struct SharedAddresses {
  int period = 0;  // 0 if the program has no segments
  // By buffer, another buffer that has the same address and whose last access is issued before its own first
  // access; -1: none. Empty: no buffer has one.
  std::vector<BufferId> before;
};

// Uses the shortest period in which no two buffers with the same address are in use at once.
SharedAddresses ShareAddresses(const Program& program);

int CountSegments(const Program& program);

// How many graphs the program needs. Segments with the same passes on the same addresses share one.
int CountGraphs(const Program& program);

// The number of passes in these graphs together.
int CountPassesOfGraphs(const Program& program);

}  // namespace tandem::schedules
