#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "plan/job_plan.h"
#include "plan/memory.h"
#include "schedules_v1/device_profile.h"
#include "schedules_v1/simulator.h"

namespace tandem::plan {

// How one optimizer step of a job would run on a device, from the simulation of its training program.
struct Prediction {
  schedules_v1::Simulation simulation;
  int64_t step_ns = 0;
  double tokens_per_second = 0;  // of all ranks
  // Model FLOPs over what the ranks' peaks could do in the step; 0 where the profile knows no peak.
  double model_flops_utilization = 0;
  std::array<int64_t, schedules_v1::kNumStreams> busy_ns{};  // by StreamKind
  int64_t exposed_ns = 0;                                 // a communication stream works and compute does not
  std::map<schedules_v1::Opcode, int64_t> exposed_by;        // what worked while compute waited for it
  std::vector<int> critical_path;                         // instructions
  MemoryPlan memory;
};

// By how much longer compute took than it would alone: it shares processors or memory with communication.
int64_t SlowedNanoseconds(const Prediction& prediction);

// FailedPrecondition where the profile has no rate for the job's compute type, or where its rates are no
// device's: a step would take no time, or more than a simulation can tell.
absl::StatusOr<Prediction> Predict(const JobPlan& plan, const schedules_v1::DeviceProfile& profile);

// What the simulation and a measurement must know of a job beside its program.
schedules_v1::Workload WorkloadOf(const JobPlan& plan);

}  // namespace tandem::plan
