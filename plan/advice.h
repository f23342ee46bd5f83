// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "nlohmann/json.hpp"
#include "plan/job_plan.h"
#include "plan/prediction.h"
#include "schedules/simulate/device_profile.h"
#include "tandem/v1/job.pb.h"

namespace tandem::plan {

// One field of a spec, as a spec has it.
struct FieldChange {
  std::string path;  // "parallelism.fsdp.prefetch"
  std::string from;
  std::string to;  // empty: without it
};

// A change of the spec whose step was simulated, too.
struct Trial {
  FieldChange field;
  std::vector<FieldChange> beside;  // which `field` needs
  int64_t step_ns = 0;
  int64_t exposed_ns = 0;
  int64_t arena_bytes = 0;
  int64_t device_bytes = 0;  // with what the device holds beside the arena
};

struct Advice {
  // One to three sentences: what the step's time goes to, what would help by how much, whether the memory
  // suffices.
  std::vector<std::string> sentences;
  std::vector<Trial> trials;
};

// What limits the step that `prediction` says of `plan`, and which change helps: other prefetch distances
// (larger ones only if compute stands still for 1 % of the step), and microbatches of twice and half the size
// with the same global batch, and where ranks share experts the other schedules, are planned and simulated,
// on threads of their own; where the job does not fit into the device's memory, recomputation and zero3 as
// well, and what is no larger than the job itself counts as fitting. Only what jobspec::Validate accepts is
// tried. `resolved` is the plan's spec.
Advice Advise(const v1::JobSpec& resolved, const JobPlan& plan, const Prediction& prediction,
              const schedules::DeviceProfile& profile);

// {sentences[], tried[{path, from, to, beside[{path, from, to}], step_seconds, exposed_seconds, arena_bytes,
// device_bytes}]}
nlohmann::json AdviceToJson(const Advice& advice);

}  // namespace tandem::plan
