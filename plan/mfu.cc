// SPDX-License-Identifier: Apache-2.0
#include "plan/mfu.h"

#include "schedules/simulate/device_profile.h"

namespace tandem::plan {

double SecondsAtPeak(const JobPlan& plan, double peak) {
  return model::FlopsPerToken(plan.model, plan.batch.sequence_length) *
         static_cast<double>(TokensPerStep(plan)) / plan.topology.world / peak;
}

double SecondsAtPeakOf(const JobPlan& plan, absl::string_view device) {
  const double peak = schedules::PeakFlops(device, ComputeName(plan));
  return peak > 0 ? SecondsAtPeak(plan, peak) : 0;
}

}  // namespace tandem::plan
