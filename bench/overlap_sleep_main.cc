// SPDX-License-Identifier: Apache-2.0
// Measures how much of expert communication the schedules hide, with compute and exchanges that sleep:
//   tandem-bench-overlap [MILLISECONDS]
// Two ranks, as threads, share the experts of three layers and have sixteen microbatches. An exchange takes
// MILLISECONDS (20 by default), and each piece of compute one to one and a half times as long, so that every
// window can cover its exchange. Prints one JSON object for each schedule, about rank 0 and a step in the
// middle of the job:
//   "compute_ms", "exchange_ms": the sums of the sleeps
//   "ends_ms": exchanges of the first forward and the last backward, which no other microbatch can hide
//   "limit_ms": ends_ms + 1.10 x the larger of compute_ms and exchange_ms
//   "hidden": 1 - (idle time of the compute stream after dispatch and combine) / exchange_ms
//   "simulated_ms": the simulator's step, from the times of the next step, which ran serialized

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "bench/result_line.h"
#include "model/node.h"
#include "nlohmann/json.hpp"
#include "plan/job_plan.h"
#include "plan/prediction.h"
#include "plan/recorded_steps.h"
#include "schedules/simulate/device_profile.h"
#include "schedules/simulate/simulator.h"
#include "schedules/simulate/timeline.h"
#include "tests/parity/job.h"
#include "tests/parity/run.h"
#include "trainer/requests.h"

namespace {

using tandem::model::Pass;

constexpr int kLayers = 3;
constexpr int kMicrobatches = 16;
constexpr int64_t kSteps = 5;    // the third is recorded as it always runs, the fourth serialized
constexpr double kExchange = 1;  // of the time given
constexpr double kForward = 1.5;
constexpr double kInput = 1.5;
constexpr double kWeight = 1;

// Of attention and experts.
double ComputeShare(Pass pass) {
  switch (pass) {
    case Pass::kBackwardInput:
      return kInput;
    case Pass::kBackwardWeight:
      return kWeight;
    default:
      return kForward;
  }
}

double Share(const std::string& kind, Pass pass) {
  if (kind == "attention" || kind == "experts") {
    return ComputeShare(pass);
  }
  return kind == "dispatch" || kind == "combine" ? kExchange : 0;
}

// Does what it stands for, and sleeps: compute for what is left of its time, so that a busy machine does not
// make it longer; an exchange for all of it, from when its last rank came.
class SleepingNode final : public tandem::model::Node {
 public:
  SleepingNode(std::unique_ptr<Node> node, std::string kind, double milliseconds)
      : node_(std::move(node)), kind_(std::move(kind)), milliseconds_(milliseconds) {}

  tandem::model::BoundPass Bind(Pass pass, absl::Span<const tandem::model::OperandMemory> operands,
                                tandem::comm::Communicator* communicator) const override {
    const auto time = std::chrono::duration_cast<Clock::duration>(
        std::chrono::duration<double, std::milli>(milliseconds_ * Share(kind_, pass)));
    return [bound = node_->Bind(pass, operands, communicator), time,
            exchanges = communicator != nullptr]() mutable {
      const Clock::time_point start = Clock::now();
      bound();
      std::this_thread::sleep_until((exchanges ? Clock::now() : start) + time);
    };
  }

 private:
  using Clock = std::chrono::steady_clock;

  const std::unique_ptr<Node> node_;
  const std::string kind_;
  const double milliseconds_;
};

nlohmann::ordered_json Measure(const std::string& schedule, double milliseconds) {
  tandem::parity::JobOptions options{.ranks = 2,
                                     .expert_parallel = 2,
                                     .microbatches_per_rank = kMicrobatches,
                                     .steps = kSteps,
                                     .layers = kLayers,
                                     .hidden = 16,
                                     .inner = 16,
                                     .heads = 2,
                                     .kv_heads = 1,
                                     .sequence_length = 8,
                                     .model_type = "mixtral",
                                     .num_experts = 4};
  options.overlap = schedule != "sequential";
  options.delay_weight_gradients = schedule == "overlap+delay";
  const tandem::plan::JobPlan plan = tandem::parity::MakeJob(options);
  tandem::parity::RunOptions run_options;
  run_options.make_nodes = [&](const tandem::ops::Operations& ops) {
    std::vector<std::unique_ptr<tandem::model::Node>> nodes =
        tandem::model::DecoderNodes(plan.model, plan.batch, plan.precision, ops);
    for (size_t i = 0; i < nodes.size(); ++i) {
      nodes[i] =
          std::make_unique<SleepingNode>(std::move(nodes[i]), plan.outline.nodes[i].kind, milliseconds);
    }
    return nodes;
  };
  run_options.with_requests = [](std::vector<tandem::trainer::RequestBox>& ranks) {
    ranks[0].AddProfile({.id = 1, .steps = 1, .serialized = true});
  };
  const tandem::parity::JobRun run = tandem::parity::RunJob(plan, run_options);

  const tandem::schedules::Program& program = plan.stage.train;
  std::vector<tandem::schedules::Timeline> timelines;
  for (const tandem::parity::ProfiledStep& step : run.profiled) {
    timelines.push_back(step.timeline);
  }
  const auto rank0 = std::find_if(timelines.begin(), timelines.end(), [](const auto& timeline) {
    return timeline.rank == 0 && !timeline.serialized;
  });
  if (rank0 == timelines.end()) {
    std::fprintf(stderr, "no step was recorded\n");
    std::exit(1);
  }
  double idle_ns = 0;
  for (const tandem::schedules::Stall& stall : ComputeStalls(program, *rank0)) {
    if (stall.cause >= 0 && program.streams[program.instructions[stall.cause].stream].name == "dispatch") {
      idle_ns += static_cast<double>(stall.end_ns - stall.start_ns);
    }
  }
  const double passes = kLayers * kMicrobatches * milliseconds;
  const double compute = passes * 2 * (kForward + kInput + kWeight);
  const double exchange = passes * 4 * kExchange;
  const double ends = 4.0 * kLayers * milliseconds * kExchange;

  tandem::schedules::DeviceProfile profile = tandem::schedules::PresetProfile("cpu").value();
  profile.cores = 0;  // what sleeps shares no processor
  profile = tandem::plan::MeasuredProfile(plan, timelines, std::move(profile));
  const tandem::schedules::Simulation simulation =
      Simulate(plan.outline, program, tandem::plan::WorkloadOf(plan), profile);

  const double step_ms = static_cast<double>(StepNanoseconds(program, *rank0)) * 1e-6;
  const double simulated_ms = static_cast<double>(StepNanoseconds(program, simulation.timeline)) * 1e-6;
  return {{"schedule", schedule},
          {"step_ms", step_ms},
          {"compute_ms", compute},
          {"exchange_ms", exchange},
          {"ends_ms", ends},
          {"limit_ms", 1.10 * std::max(compute, exchange) + ends},
          {"hidden", 1 - idle_ns * 1e-6 / exchange},
          {"simulated_ms", simulated_ms},
          {"simulated_off", simulated_ms / step_ms - 1}};
}

}  // namespace

int main(int argc, char** argv) {
  const double milliseconds = argc > 1 ? std::atof(argv[1]) : 20;
  if (milliseconds <= 0 || argc > 2) {
    std::fprintf(stderr, "usage: tandem-bench-overlap [MILLISECONDS]\n");
    return 64;
  }
  const std::string machine = tandem::bench::ProcessorName();
  for (const char* schedule : {"sequential", "overlap", "overlap+delay"}) {
    std::printf("%s\n", tandem::bench::ResultLine(Measure(schedule, milliseconds), machine).c_str());
    std::fflush(stdout);
  }
  return 0;
}
