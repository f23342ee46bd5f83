// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "comm/communicator.h"
#include "model/node.h"
#include "plan/job_plan.h"
#include "platform/clock.h"
#include "platform/files.h"
#include "schedules/simulate/timeline.h"
#include "tandem/v1/report.pb.h"
#include "tandem/v1/state.pb.h"
#include "tests/device/seeded_scheduler.h"
#include "trainer/backend.h"
#include "trainer/requests.h"

namespace tandem::parity {

// One collective as a rank made it.
struct Collective {
  std::string operation;  // "AllGather"
  int64_t bytes = 0;      // of the input
};

struct ProfiledStep {
  uint64_t id = 0;
  schedules::Timeline timeline;
  bool last = false;
};

// What a job did, all ranks together.
struct JobRun {
  std::optional<v1::StepReport> start;  // step 0: the validation before the first update
  std::vector<v1::StepReport> steps;
  // "<unit>/weights", "<unit>/published", "<unit>/exp_avg", "<unit>/exp_avg_sq": the bytes of the whole
  // arrays, with all experts, in the main type; of further classes of types "<unit>/class 1/weights".
  std::map<std::string, std::string> arrays;
  std::map<std::string, std::vector<bool>> known;  // their elements that some rank holds
  std::set<std::string> unequal_replicas;          // arrays that two ranks hold differently
  std::map<std::string, std::string> node_states;  // "rank 0 layers.0.route.counts": its bytes
  // Of rank 0, by group name.
  std::map<std::string, std::vector<Collective>> collectives;
  std::vector<int64_t> arena_bytes;    // by rank
  std::vector<uint64_t> answered;      // request ids, of all ranks
  std::vector<ProfiledStep> profiled;  // of all ranks, in no order
  std::vector<int64_t> checkpoints;    // steps
  std::vector<v1::CheckpointWarning> warnings;
  std::vector<std::pair<int64_t, std::string>> nonfinite;  // steps that were reported, and the message
  std::vector<std::pair<int64_t, std::string>> spikes;     // likewise, of gradient norms
  std::vector<std::pair<int64_t, std::string>> loss_spikes;
  std::string request_error;  // of the last answer
  int64_t resumed_step = 0;
  std::string resumed_from;
  bool stopped = false;  // on request
};

// None where no validation followed the step.
std::optional<double> ValidationLossOf(const v1::StepReport& step);

struct RunOptions {
  std::string job = "parity";  // id
  bool fill_with_nan = false;
  // Every rank's streams are this scheduler's, an instruction at a time; null: threads.
  device::SeededScheduler* scheduler = nullptr;
  // What rank r runs on; empty: the CPU. Called on the rank's thread.
  std::function<std::unique_ptr<trainer::Backend>(int rank)> make_backend;
  bool arrays = true;  // of the whole state, to be compared
  // The code of the nodes of an outline that is not the plan's decoder's.
  std::function<std::vector<std::unique_ptr<model::Node>>(const ops::Operations& ops)> make_nodes;
  // Called on rank 0's thread at its end, while its backend is there.
  std::function<void()> at_end;
  bool keep_steps = true;  // JobRun::steps; those of many steps take more memory than a leak
  // Called on rank 0's reporter thread after each step.
  std::function<void(const v1::StepReport&)> on_report;
  platform::Files* files = nullptr;        // of rank 0's checkpoints; null: the machine's
  const platform::Clock* clock = nullptr;  // of rank 0's waits for saves; null: the machine's
  // Gets the requests of every rank before they start.
  std::function<void(std::vector<trainer::RequestBox>&)> with_requests;
};

// Runs the job with its ranks as threads of this process: the real loop, executor, loader and checkpoints.
JobRun RunJob(const plan::JobPlan& plan, const RunOptions& options = {});
// The same of a job of several stages.
JobRun RunStages(absl::Span<const plan::JobPlan> stages, const RunOptions& options = {});

}  // namespace tandem::parity
