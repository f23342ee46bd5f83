// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "schedules/build/schedule.h"
#include "schedules/build/stage_frame.h"
#include "schedules/program/build_options.h"
#include "schedules/program/outline.h"
#include "schedules/program/program.h"
#include "schedules/program/vector_clock.h"

namespace tandem::schedules {

// The passes that turn a schedule into a program, one file each, in the order in which they run. All are
// pure. Arguments that contradict each other are a bug (TANDEM_CHECK). All passes work on operands; only
// ShardUnits knows units and placements.

// recompute.cc. Recomputes the values with recompute[value] (empty: none) before their first backward reader,
// and with them the values that they are computed from and that were not kept either. A chain that
// communicates goes to its place in the schedule, if the schedule has one.
PassList InsertRecompute(const Outline& outline, const std::vector<bool>& recompute, const PassList& passes);

// expand.cc. Turns values into buffers, and passes into instructions. Operands are complete except those on
// parameters and contributions, which are in their place with buffer -1. A batch is loaded directly before
// the microbatch's first pass. A HostWait is directly before the first reader of a value that the host reads.
// The program gets the frame's streams, communicators and buffers; its locals follow.
Program ExpandPasses(const Outline& outline, const StageFrame& frame, const std::vector<bool>& recompute,
                     const PassList& passes, int num_microbatches, bool trains);

// The parts of a program around its passes.
struct ProgramParts {
  bool update = false;     // begins with optimizer steps and their report
  bool gradients = false;  // has reductions, the norm and its report
  bool saves = false;      // has snapshots behind the optimizer steps
};

// sharding.cc, gradients.cc. Fills in the operands on units. Puts a gather directly before the first use of
// every span of uses, and the Zero, Round, Accumulate and ReduceGradients of every contribution directly
// after its last part. Adds the parts that `parts` requests, and the report of the losses.
void ShardUnits(const Outline& outline, const BuildOptions& options, const StageFrame& frame,
                ProgramParts parts, Program& program);

// order.cc. Moves each gather ahead by `prefetch` spans, and each LoadBatch by one microbatch. Adds waits so
// that no gather runs further ahead than that.
void OrderInstructions(const Outline& outline, int prefetch, Program& program);

// budgets.cc. Two bounds on the bytes of locals that are alive. `least` is the most if every instruction
// ended before the next is issued; instruction least_at needs it. `by_default` is the most if each reduction
// or dispatch ended only when the next one of its stream, or the norm, is issued. Both assume that a send or
// receive lasts as long, and that a reduction without peers ends before the next instruction, because its
// rank holds the whole state of the unit and has little memory left.
struct Budgets {
  int64_t least = 0;
  int64_t by_default = 0;
  int least_at = -1;
};

Budgets BudgetsOf(const Program& program);

// waits.cc. Adds the waits that conflicting operands require, unless another wait of the instruction implies
// them, and then the waits that keep the memory alive within the budget. All waits of a segment's
// instructions become waits of its first instruction, and waits for any of them become waits for its last.
// `before` is SharedAddresses::before; an access of a buffer waits for all accesses of the buffer before it.
// Requires budget >= least. Returns what every instruction knows.
VectorClocks InsertWaits(int64_t budget, const std::vector<BufferId>& before, Program& program);

// addresses.cc. Assigns addresses to persistent buffers and rings, from 0 on, which are the same in every
// program of a frame. The targets of Snapshots get theirs later: PlaceSaved assigns them from `begin` on and
// returns their end.
struct PersistentBytes {
  int64_t arena = 0;
  int64_t host = 0;
};
PersistentBytes PlacePersistent(std::vector<Buffer>& buffers);
int64_t PlaceSaved(int64_t begin, std::vector<Buffer>& buffers);

// addresses.cc. Assigns addresses to the program's locals, above `persistent`. Two buffers share bytes only
// if all accesses of one are known to have ended before any of the other. `budget` bounds what is alive, so
// any layout within it is good enough. `before` is SharedAddresses::before; a buffer is placed together with
// those before it. `like` is null or another program with the same locals and more; its addresses are taken
// if they are allowed here. Returns the end of the program's memory.
PersistentBytes PlaceLocals(const VectorClocks& clocks, PersistentBytes persistent, int64_t budget,
                            const std::vector<BufferId>& before, const Program* like, Program& program);

}  // namespace tandem::schedules
