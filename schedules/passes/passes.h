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

// The passes between a schedule and a program, in the order in which they run, one file each. All are pure;
// what does not fit together is a bug (TANDEM_CHECK). Each works on operands: only ShardUnits knows what
// units and placements are.

// recompute.cc. Recomputes, before their first backward reader, the values with recompute[value] (empty:
// none), and what these are computed from where that was not kept either. A chain that communicates goes to
// its place in the schedule, if there is one.
PassList InsertRecompute(const Outline& outline, const std::vector<bool>& recompute, const PassList& passes);

// expand.cc. Values become buffers, passes become instructions with complete operands, but for those on
// parameters and contributions: these have buffer -1 and are in their place. A batch is loaded directly
// before the microbatch's first pass; the host waits for a value that it reads directly before the first
// reader. The program gets the frame's streams, communicators and buffers; locals follow.
Program ExpandPasses(const Outline& outline, const StageFrame& frame, const std::vector<bool>& recompute,
                     const PassList& passes, int num_microbatches, bool trains);

// What a program has around its passes.
struct ProgramParts {
  bool update = false;     // optimizer steps and their report at the start
  bool gradients = false;  // reductions, the norm and its report
  bool saves = false;      // snapshots behind the optimizer steps
};

// sharding.cc, gradients.cc. Fills in the operands on units. Every span of uses gets its gather, directly
// before the first use; every contribution its Zero, Round, Accumulate and ReduceGradients, directly after
// its last part. Adds what `parts` says and the report of the losses.
void ShardUnits(const Outline& outline, const BuildOptions& options, const StageFrame& frame,
                ProgramParts parts, Program& program);

// order.cc. Moves each gather ahead by `prefetch` spans, and each LoadBatch by one microbatch. Adds the waits
// that keep a gather from running further ahead than that.
void OrderInstructions(const Outline& outline, int prefetch, Program& program);

// fills.cc. For tests: a Fill of every local on the device, directly after its last access and on its stream.
void InsertFills(Program& program);

// budgets.cc. How many bytes of locals are alive at most if every instruction ended before the next is issued
// (least, at instruction least_at), and if each reduction or dispatch ended only when the next one of its
// stream, or the norm, is issued (by_default). A send or receive lasts as long in both. A reduction without
// peers ends in both before the next instruction: its rank has all of the unit's state, and little room.
struct Budgets {
  int64_t least = 0;
  int64_t by_default = 0;
  int least_at = -1;
};

Budgets BudgetsOf(const Program& program);

// waits.cc. Adds the waits that conflicting operands require, and none that another one of the instruction
// implies; then those that keep what is alive for an instruction within the budget. What instructions of a
// segment would wait for, its first waits for; what would wait for one of them waits for its last. before:
// SharedAddresses::before; what accesses a buffer waits for all accesses of the one before it. Requires
// budget >= least. Returns what every instruction knows.
VectorClocks InsertWaits(int64_t budget, const std::vector<BufferId>& before, Program& program);

// addresses.cc. Addresses of persistent buffers and rings, from 0 on; the same for every program of a frame.
// What Snapshots write has none yet: PlaceSaved gives it those from `begin` on, and returns its end.
struct PersistentBytes {
  int64_t arena = 0;
  int64_t host = 0;
};
PersistentBytes PlacePersistent(std::vector<Buffer>& buffers);
int64_t PlaceSaved(int64_t begin, std::vector<Buffer>& buffers);

// addresses.cc. Addresses of the program's locals, above `persistent`. Two buffers share bytes only if all
// accesses of one are known to have ended by all of the other. budget: what is alive is within it, so a
// layout within it is as good as any. before: SharedAddresses::before; buffers with others before them are
// placed together. like: another program with the same locals and more, or null; its
// addresses are taken if they may be. Returns where the program's memory ends.
PersistentBytes PlaceLocals(const VectorClocks& clocks, PersistentBytes persistent, int64_t budget,
                            const std::vector<BufferId>& before, const Program* like, Program& program);

}  // namespace tandem::schedules
