// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "absl/time/time.h"
#include "controller/core/decide.h"

namespace tandem::controller {

// Returns the event of a checkpoint or warning that a rank has noticed; none if the notice was sent before,
// is of an older attempt, or comes from a worker without a rank of the attempt. num_undecided: warnings of
// the same job that were decided together with this one and are not applied yet.
Decision DecideNotice(const State& state, const CheckpointNoticed& in, absl::Time now, int num_undecided = 0);

}  // namespace tandem::controller
