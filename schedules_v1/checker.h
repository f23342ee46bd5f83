#pragma once

#include <vector>

#include "absl/status/status.h"
#include "schedules_v1/outline.h"
#include "schedules_v1/program.h"

namespace tandem::schedules_v1 {

// Proves that programs, run one after the other on one rank, are free of races and of wrong lifetimes.
// InvalidArgument names the first thing that is wrong, with the two instructions that it lies between, what
// they both touch, and what is missing:
//
//   * operands that the outline or the slots do not have; a wait for anything but an earlier instruction of
//     another stream (operands.h)
//   * two conflicting accesses (effects.h) that stream order and waits leave unordered; memory that is handed
//     out again to who does not come after its last users (arena_order.h)
//   * a slot or value used outside its live range, opened twice, or never closed (lifetimes.h)
//   * the first gradient write of a lease, value or shard not overwriting, or a later one overwriting;
//     contributions in another order than that of nodes and microbatches
//   * a unit reduced before its last contribution, twice, or not at all; weights updated, a norm taken, a
//     report or a snapshot made out of turn
//   * what hygiene.h lists: rules that some harmless programs break too
//
// At the seam between two programs every stream joins every other, and a program begins and ends with nothing
// open. So nothing that an earlier program did can race with a later one, and whether a program is right does
// not depend on which ran before it: each is walked once, wherever and however often it stands.
//
// Milliseconds: linear in the number of instructions, but for the arena's map.
absl::Status CheckSequence(const Outline& outline, const std::vector<const Program*>& programs);

// A program followed by itself.
absl::Status CheckProgram(const Outline& outline, const Program& program);

}  // namespace tandem::schedules_v1
