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

// The compiler passes that turn a schedule, which is a list of node passes, into a program: one file each, in
// the order in which they run. (Segments are marked between order.cc and waits.cc: segments.h.) All are pure.
// Arguments that contradict each other are a bug (TANDEM_CHECK). Only ShardUnits depends on units and
// placements; the others see operands.

// recompute.cc. Recomputes the values with recompute[value] (empty: none) before their first backward reader,
// and with them the values that they are computed from and that were not kept either. If one of the nodes
// that a layer recomputes communicates, these nodes run at the places that the schedule marks for them
// (NodePass::opcode), if it does.
PassList InsertRecompute(const Outline& outline, const std::vector<bool>& recompute, const PassList& passes);

// expand.cc. Turns values into buffers, and passes into instructions. Operands are complete, except that
// those for parameters and contributions have buffer -1. A batch is loaded directly before the microbatch's
// first pass. A HostWait is directly before the first reader of a value that the host reads. The program gets
// the frame's streams, communicators and buffers; its locals follow.
Program ExpandPasses(const Outline& outline, const StageFrame& frame, const std::vector<bool>& recompute,
                     const PassList& passes, int num_microbatches, bool trains);

// The parts of a program around its passes.
struct ProgramParts {
  bool update = false;     // begins with optimizer steps and their report
  bool gradients = false;  // has reductions, the norm and its report
  bool saves = false;      // has snapshots behind the optimizer steps
};

// sharding.cc, gradients.cc. Fills in the operands for parameters and contributions. Puts a gather directly
// before the first use in every span (spans.h), and the Zero, Round, Accumulate and ReduceGradients of every
// contribution directly behind the last pass that writes it. Adds the parts that `parts` requests, and the
// report of the losses.
void ShardUnits(const Outline& outline, const BuildOptions& options, const StageFrame& frame,
                ProgramParts parts, Program& program);

// order.cc. Issues each Unshard `prefetch` spans before its use (one that serves the whole run at the start),
// and each LoadBatch one microbatch before its use. Adds waits so that no Unshard starts earlier than that.
void OrderInstructions(const Outline& outline, int prefetch, Program& program);

// budgets.cc. Two budgets, each the most bytes of locals that are alive at once if one assumes that
// * every instruction ends before the next one is issued (`least`; instruction least_at needs it);
// * each collective except gathers ends only when the next one on its stream, or the norm, is issued
//   (`by_default`).
// In both, a send or receive ends only when the next one on its stream is issued. A reduction without peers
// is no collective, so its memory is not held longer: its rank has the whole state of the unit and little
// memory left.
struct Budgets {
  int64_t least = 0;
  int64_t by_default = 0;
  int least_at = -1;
};

Budgets BudgetsOf(const Program& program);

// waits.cc. Adds the waits that conflicting operands require, unless another wait of the instruction implies
// them, and then the waits that keep the memory alive within the budget. All waits of a segment's
// instructions become waits of its first instruction, and waits for any of them become waits for its last.
// `before` is SharedAddresses::before; an access of buffer b waits for all accesses of before[b]. Requires
// budget >= least. Returns what every instruction knows (vector_clock.h).
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
// if all accesses of one are known to have ended before any of the other. Any layout within `budget` is good
// enough: waits keep what is alive within it. `before` is SharedAddresses::before; buffer b gets the address
// of before[b]. `like` is null or another program with the same locals and more. The locals get their
// addresses there, if these are allowed here. Returns the end of the program's memory.
PersistentBytes PlaceLocals(const VectorClocks& clocks, PersistentBytes persistent, int64_t budget,
                            const std::vector<BufferId>& before, const Program* like, Program& program);

}  // namespace tandem::schedules
