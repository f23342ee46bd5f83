// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "nlohmann/json.hpp"
#include "plan/job_plan.h"
#include "plan/prediction.h"
#include "plan/trials.h"
#include "schedules/simulate/device_profile.h"
#include "tandem/v1/job.pb.h"

namespace tandem::plan {

struct Advice {
  // One to three sentences: what takes the step's time, what would reduce it and by how much, and whether the
  // memory is enough.
  std::vector<std::string> sentences;
  std::vector<Trial> trials;
};

// Finds what limits the step of `plan` according to `prediction`, and which of the changes that are tried
// (trials.h) would help. If neither the job nor a change fits into the device's memory, the change may still
// be recommended for its time, unless it needs more memory than the job. `resolved` is the plan's spec.
Advice Advise(const v1::JobSpec& resolved, const JobPlan& plan, const Prediction& prediction,
              const schedules::DeviceProfile& profile);

// JSON {sentences[], tried[{path, from, to, beside[{path, from, to}], step_seconds, exposed_seconds,
// arena_bytes, device_bytes}]}
nlohmann::json AdviceToJson(const Advice& advice);

}  // namespace tandem::plan
