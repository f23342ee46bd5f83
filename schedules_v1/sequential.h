#pragma once

#include "schedules_v1/outline.h"
#include "schedules_v1/program.h"

namespace tandem::schedules_v1 {

// The plainest schedule: one microbatch after the other, forward and then backward. Builders emit compute
// only, in issue order; the passes (program_builder.h) add everything else.

// Per microbatch LoadBatch, Forward of all nodes, Backward of all in reverse (so the last node's two are
// adjacent); then GradientNorm, OptimizerStep of every unit, Report. Requires num_microbatches > 0.
Program BuildSequential(const Outline& outline, int num_microbatches);

// Per microbatch LoadBatch and Forward of all nodes; then Report. Requires num_microbatches > 0.
Program BuildForwardOnly(const Outline& outline, int num_microbatches);

}  // namespace tandem::schedules_v1
