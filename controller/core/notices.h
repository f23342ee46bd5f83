// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "absl/time/time.h"
#include "controller/core/decide.h"

namespace tandem::controller {

// What follows from a notice of a rank: an event for each checkpoint and each warning, however often its
// worker sends it. A notice of an older attempt, or from a worker without a rank of the attempt, changes
// nothing. num_undecided: warnings of the same job that were decided together with this one and are not
// applied yet.
Decision DecideNotice(const State& state, const CheckpointNoticed& in, absl::Time now, int num_undecided = 0);

}  // namespace tandem::controller
