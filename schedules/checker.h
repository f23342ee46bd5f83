#pragma once

#include <vector>

#include "absl/status/status.h"
#include "schedules/outline.h"
#include "schedules/program.h"

namespace tandem::schedules {

// Proves that programs, run one after the other on one rank, are free of races and of wrong lifetimes.
// InvalidArgument names the first thing that is wrong, with the two instructions that it lies between:
//
//   * operands that the outline or the slots do not have; a wait for anything but an earlier instruction of
//     another stream; a communicator that two streams use
//   * two conflicting accesses (effects.h) that stream order and waits leave unordered
//   * a slot or value used outside its live range, opened twice, or never closed
//   * the first gradient write of a lease, value or shard not overwriting, or a later one overwriting
//   * a unit reduced before its last contribution, twice, or not at all; weights updated out of turn
//
// Milliseconds: linear in the number of instructions.
absl::Status CheckSequence(const Outline& outline, const std::vector<const Program*>& programs);

// A program followed by itself.
absl::Status CheckProgram(const Outline& outline, const Program& program);

}  // namespace tandem::schedules
