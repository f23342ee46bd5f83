// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "nlohmann/json.hpp"
#include "schedules/simulate/device_profile.h"
#include "tandem/v1/job.pb.h"

namespace tandem::plan {

// Chooses how far ahead of their use gathers are issued if parallelism.fsdp.prefetch is auto. `tandem plan`
// does this for its profile; the controller does it when a job is submitted, for the kind of device that the
// job requests. The choice does not change a bit of a job's numbers.

// The result of simulating one distance.
struct PrefetchTrial {
  int distance = 0;
  int64_t step_ns = 0;
  int64_t device_bytes = 0;  // the arena and what a rank needs outside it
  bool fits = true;          // whether that fits into the profile's memory
};

struct PrefetchChoice {
  int distance = 0;
  std::vector<PrefetchTrial> trials;  // by distance
};

bool ChoosesPrefetch(const v1::JobSpec& resolved);

// Plans and simulates the job with every distance, in parallel. Chooses the shortest step among those that
// fit, and of almost equal steps the one that needs the least memory. If none fits, chooses the one that
// needs the least memory. The same arguments give the same choice. Returns FailedPrecondition as Predict
// does.
absl::StatusOr<PrefetchChoice> ChoosePrefetch(const v1::JobSpec& resolved,
                                              const schedules::DeviceProfile& profile);

// The profile with which a submitted job is simulated: "cpu" or "h100".
const char* PrefetchPreset(const v1::JobSpec& resolved);

// Replaces auto by the choice for the preset "cpu" or "h100", whichever is the kind of device that the job
// requests. Other specs are not changed. Returns Internal if a plan is refused (a bug of ours).
absl::Status ResolvePrefetch(v1::JobSpec& resolved);

// "2, chosen of 0: 12.1 ms a step, 3.0 GiB; 1: ...".
std::string PrefetchChoiceToText(const PrefetchChoice& choice);

// JSON {distance, trials[]{distance, step_seconds, device_bytes, fits}}
nlohmann::json PrefetchChoiceToJson(const PrefetchChoice& choice);

}  // namespace tandem::plan
