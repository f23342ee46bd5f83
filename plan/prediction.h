// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "plan/job_plan.h"
#include "plan/memory_plan.h"
#include "schedules/simulate/device_profile.h"
#include "schedules/simulate/memory_curve.h"
#include "schedules/simulate/simulator.h"
#include "schedules/simulate/timeline.h"

namespace tandem::plan {

// What the train program's memory waits do: they keep the buffers of a run within the budget.
struct MemoryWaits {
  int count = 0;
  int64_t freed_bytes = 0;  // by all of them
  int64_t cost_ns = 0;      // by how much longer the step is than without them
};

// How one optimizer step of a job would run on a device, from the simulation of its train program.
struct Prediction {
  schedules::Simulation simulation;
  int64_t step_ns = 0;
  int64_t saving_step_ns = 0;    // of one whose run saves the step before; 0: the job saves none
  double tokens_per_second = 0;  // of all ranks
  // Model FLOPs over what the ranks' peaks in the layers' compute type could do in the step; 0 where the
  // profile knows no peak.
  double model_flops_utilization = 0;
  std::vector<int64_t> busy_ns;                     // by stream of the program
  int64_t exposed_ns = 0;                           // a communication stream works and none that computes
  std::vector<int64_t> exposed_by_stream;           // of the program; streams may be exposed side by side
  std::map<schedules::StallCause, int64_t> stalls;  // what worked while the compute stream waited for it
  std::vector<int> critical_path;                   // instructions
  MemoryPlan memory;
  schedules::MemoryCurve memory_curve;  // over the step
  MemoryWaits memory_waits;
  schedules::HostWaits host_waits;
  int64_t outside_bytes = 0;  // on the device beside the arena; 0: the profile does not know

  int64_t device_bytes() const { return memory.arena_bytes + outside_bytes; }
};

// How long a stream that computes works.
int64_t ComputeNanoseconds(const JobPlan& plan, const Prediction& prediction);

// By how much longer compute took than it would undisturbed: it shares processors or memory with
// communication.
int64_t SlowedNanoseconds(const JobPlan& plan, const Prediction& prediction);

// FailedPrecondition where the profile has no rate for a type that the job computes in, or where its rates
// are not a device's: a step would take no time, or more than a simulation can represent.
absl::StatusOr<Prediction> Predict(const JobPlan& plan, const schedules::DeviceProfile& profile);

// What the simulation and a measurement must know of a job beside its programs.
schedules::Workload WorkloadOf(const JobPlan& plan);

}  // namespace tandem::plan
