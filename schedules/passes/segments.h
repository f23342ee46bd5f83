// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "schedules/program/program.h"

namespace tandem::schedules {

// A segment is a sequence of node passes, consecutive on one stream, that one captured CUDA graph replays. A
// graph accesses only fixed addresses. None of its passes starts before everything that any of them waits for
// has ended, and whatever waits for one of them waits for all.

// Whether the instruction may be in a segment if its node may. True if it has no communicator, accesses no
// host memory, which the host may read or change at any time, and does not read the run's inputs.
bool MayBeReplayed(const Program& program, const Instruction& instruction);

// Marks the segments (Instruction::segment) of a program, and moves the instructions of each directly behind
// its first one. Runs after OrderInstructions and before InsertWaits (passes.h): the program's only waits are
// those that keep gathers from running too far ahead.
//
// A segment is as long as possible. Its passes are of one microbatch and of nodes in `replayed` (by node).
// Only its first pass may have to wait for another stream, and other streams may have to wait only for its
// last pass. So replaying the segment as a whole delays nothing, with one exception: an Unshard may have to
// wait for any pass of the segment (one that reads the buffer of an earlier gather), and then waits for the
// last. It is issued well before its use, so this delay is harmless. A HostWait ends the segments of all
// streams.
//
// A graph cannot access a ring (program.h), because the next run uses the element at another address. So the
// passes of a segment access locals instead. A Copy before the segment fills them from the ring, if no
// earlier segment has, and a Copy directly behind it writes them to the ring.
void MarkSegments(const std::vector<bool>& replayed, Program& program);

// Which locals get the same address, so that one graph serves a segment of microbatch m and the same segment
// of microbatch m + period.
struct SharedAddresses {
  int period = 0;  // 0 if the program has no segments
  // before[b] is the buffer that has the address of b directly before b: its last access is issued before the
  // first access of b. -1: there is none. Empty: no buffer has one.
  std::vector<BufferId> before;
};

// Chooses the shortest period with which no two buffers with the same address are in use at once. If there is
// none, the period is the number of microbatches, and no addresses are shared.
SharedAddresses ShareAddresses(const Program& program);

int CountSegments(const Program& program);

// How many graphs the program needs. Segments with the same passes on the same addresses share a graph.
int CountGraphs(const Program& program);

// The number of passes in all graphs of the program.
int CountPassesOfGraphs(const Program& program);

}  // namespace tandem::schedules
