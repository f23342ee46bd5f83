// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "absl/time/time.h"
#include "tandem/v1/state.pb.h"

namespace tandem::controller {

// The steps of a job that were reported. A step that is repeated counts once.
struct StepTotals {
  int64_t steps = 0;
  double seconds = 0;  // their total time
};

// Divides the time of `job` since its submission into parts (waiting, starting, steps, …). Pure.
v1::TimeAccount AccountTime(const v1::Job& job, const StepTotals& totals, absl::Time now);

}  // namespace tandem::controller
