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
  // One to three sentences: what the step's time goes to, what would help by how much, whether the memory
  // suffices.
  std::vector<std::string> sentences;
  std::vector<Trial> trials;
};

// What limits the step that `prediction` says of `plan`, and which of the changes that are tried (trials.h)
// helps. Where the job does not fit into the device's memory, a change that makes it no larger may be
// recommended for its time all the same. `resolved` is the plan's spec.
Advice Advise(const v1::JobSpec& resolved, const JobPlan& plan, const Prediction& prediction,
              const schedules::DeviceProfile& profile);

// {sentences[], tried[{path, from, to, beside[{path, from, to}], step_seconds, exposed_seconds, arena_bytes,
// device_bytes}]}
nlohmann::json AdviceToJson(const Advice& advice);

}  // namespace tandem::plan
