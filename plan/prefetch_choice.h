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

// How far ahead of their use gathers are issued, where parallelism.fsdp.prefetch is auto: what `tandem plan`
// does for its profile, and the controller, for the kind of device that a job asks for, when it is submitted.
// No bit of a job's numbers depends on it.

// A distance that was simulated.
struct PrefetchTrial {
  int distance = 0;
  int64_t step_ns = 0;
  int64_t device_bytes = 0;  // arena, and what a rank needs beside it
  bool fits = true;          // in the profile's memory
};

struct PrefetchChoice {
  int distance = 0;
  std::vector<PrefetchTrial> trials;  // by distance
};

bool ChoosesPrefetch(const v1::JobSpec& resolved);

// Plans and simulates the job with every distance, side by side. Of those that fit the shortest step, and of
// steps as good as equal the one that needs the least memory; where none fits the one that needs the least.
// The same arguments give the same choice. FailedPrecondition as of Predict.
absl::StatusOr<PrefetchChoice> ChoosePrefetch(const v1::JobSpec& resolved,
                                              const schedules::DeviceProfile& profile);

// The profile that a submitted job is simulated with: "cpu" or "h100".
const char* PrefetchPreset(const v1::JobSpec& resolved);

// Replaces auto, for a device like the preset "cpu" or "h100", whichever kind the job asks for. Other specs
// stay as they are. Internal where a plan is refused (a bug of ours).
absl::Status ResolvePrefetch(v1::JobSpec& resolved);

// "2, chosen of 0: 12.1 ms a step, 3.0 GiB; 1: ...".
std::string PrefetchChoiceToText(const PrefetchChoice& choice);

// {distance, trials[]{distance, step_seconds, device_bytes, fits}}
nlohmann::json PrefetchChoiceToJson(const PrefetchChoice& choice);

}  // namespace tandem::plan
