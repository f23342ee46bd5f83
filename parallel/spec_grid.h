#pragma once

#include "parallel/grid_sizes.h"
#include "tandem/v1/job.pb.h"

namespace tandem::parallel {

// The sizes that a resolved job spec gives: its ranks are 0, 1, ..., and gathers always have clones.
GridSizes GridOf(const v1::Parallelism& resolved);

}  // namespace tandem::parallel
