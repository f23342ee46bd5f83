// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "plan/job_plan.h"
#include "plan/memory_plan.h"
#include "schedules/simulate/device_profile.h"
#include "schedules/simulate/memory_curve.h"
#include "schedules/simulate/simulator.h"
#include "schedules/simulate/timeline.h"

namespace tandem::plan {

// The effect of the train program's memory waits, which keep the buffers of a run within the budget.
struct MemoryWaits {
  int count = 0;
  int64_t freed_bytes = 0;  // sum over all of them
  int64_t cost_ns = 0;      // how much longer the step is than without these waits
};

// How one optimizer step of a job would run on a device, from a simulation of its train program.
struct Prediction {
  schedules::Simulation simulation;
  int64_t step_ns = 0;
  // Step time of a train_save run, which also copies the weights and states for a checkpoint to the host; 0:
  // the job saves nothing.
  int64_t saving_step_ns = 0;
  double tokens_per_second = 0;  // over all ranks
  // Model FLOPs divided by what the ranks could do in the step at their peak in the layers' compute type; 0
  // if the profile knows no peak.
  double model_flops_utilization = 0;
  std::vector<int64_t> busy_ns;  // by stream of the program
  int64_t exposed_ns = 0;        // time in which a communication stream works and no stream computes
  // By stream of the program; several may be exposed at the same time.
  std::vector<int64_t> exposed_by_stream;
  std::map<schedules::StallCause, int64_t> stalls;  // time that compute stood still (StallsByCause)
  std::vector<int> critical_path;                   // indices of instructions
  MemoryPlan memory;
  schedules::MemoryCurve memory_curve;  // in the course of the step
  MemoryWaits memory_waits;
  schedules::HostWaits host_waits;
  int64_t outside_bytes = 0;  // device memory outside the arena; 0: the profile does not know

  int64_t device_bytes() const { return memory.arena_bytes + outside_bytes; }
};

// How long at least one stream computes.
int64_t ComputeNanoseconds(const JobPlan& plan, const Prediction& prediction);

// How much longer compute took than it would undisturbed, because it shares processors or memory with
// communication.
int64_t SlowedNanoseconds(const JobPlan& plan, const Prediction& prediction);

// Returns FailedPrecondition if the profile has no rate for a type that the job computes in, or if its rates
// are impossible: a step would take no time, or longer than a simulation can represent.
absl::StatusOr<Prediction> Predict(const JobPlan& plan, const schedules::DeviceProfile& profile);

// What a simulation and a measurement need to know about a job besides its programs.
schedules::Workload WorkloadOf(const JobPlan& plan);

// The model FLOPs utilization (MFU) of a step is SecondsAtPeak divided by the time that the step takes. Plans
// and step reports (trainer/reporter.h) both compute it.

// Seconds that an optimizer step would take if the devices of all ranks did the model's FLOPs
// (model::FlopsPerToken) at this rate. `peak` is FLOPs a second of one device in the type that layers compute
// in, > 0.
double SecondsAtPeak(const JobPlan& plan, double peak);

// SecondsAtPeak with the vendor's figure for a device with that driver name; 0 if the figure is unknown
// (schedules::PeakFlops).
double SecondsAtPeakOf(const JobPlan& plan, absl::string_view device);

// The bytes that one rank sends to others in an optimizer step, by the purpose of its communicator ("gather",
// "reduce", "dispatch"), computed from the train program's operands. In a collective over n ranks each rank
// sends (n - 1) / n of the buffer. If routers decide how many rows travel, the number is that of tokens
// spread evenly over the experts. Validations, checkpoints, reports and messages of a few bytes do not count.
// Empty for one rank.
std::map<std::string, double> SentBytes(const JobPlan& plan);

}  // namespace tandem::plan
