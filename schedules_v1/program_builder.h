#pragma once

#include <cstdint>
#include <vector>

#include "schedules_v1/outline.h"
#include "schedules_v1/program.h"

namespace tandem::schedules_v1 {

// ZeRO-3: every unit is gathered for each use and its gradients are reduced once a microbatch.
struct FsdpOptions {
  int prefetch = 1;  // units gathered ahead of the one in use: 0, 1, 2
  // Bytes of a slot per unit; units of equal bytes share a size class.
  std::vector<int64_t> unit_parameter_slot_bytes;
  std::vector<int64_t> unit_gradient_slot_bytes;
};

// A builder's program (sequential.h) through every pass: complete, ready for the checker and the executor.
// Pure, and the same on every rank. Require num_microbatches > 0 and an entry per unit in the options.
Program BuildTrainProgram(const Outline& outline, const FsdpOptions& options, int num_microbatches);
Program BuildValidateProgram(const Outline& outline, const FsdpOptions& options, int num_microbatches);

// One Snapshot. It is a program and not the end of the train program, because whether a step is followed by
// one is known only when the step runs (a request, a cadence), and a program is fixed. After the seam it
// reads the state of the finished step, and the next step starts after it.
Program BuildSnapshotProgram();

// Gives programs that share their slots the same number of them, the larger of each class. Requires
// programs that were built with the same options.
void ShareSlots(Program& a, Program& b);

}  // namespace tandem::schedules_v1
