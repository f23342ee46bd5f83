// SPDX-License-Identifier: Apache-2.0
// Steps per second of a job on real tandem-trainer processes, without the daemons around them:
//   tandem-bench-step JOB.yaml PATH_OF_TANDEM_TRAINER WARMUP_STEPS [--profile STEPS FILE]
// Prints one JSON object. The time runs from the report of the last warm-up step to that of the last step.
// --profile: after the warm-up that many steps are recorded as they always run, and as many with one
// instruction at a time; a device profile measured from the latter goes to FILE. The time then begins behind
// them, and "program_ms" is how long the training program took in the former, on the slowest rank (median).

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "bench/median.h"
#include "bench/read_job.h"
#include "bench/result_line.h"
#include "nlohmann/json.hpp"
#include "plan/recorded_steps.h"
#include "platform/build_info.h"
#include "schedules/simulate/device_profile.h"
#include "schedules/simulate/timeline.h"
#include "tests/trainer/fake_daemon.h"

namespace {

using tandem::v1::FromTrainer;

struct Recorded {
  std::vector<tandem::v1::StepTimeline> steps;
  int64_t last_step = 0;
};

// Asks rank 0, waits for all.
Recorded Record(tandem::trainer::FakeDaemon& daemon, int ranks, int steps) {
  constexpr uint64_t kId = 1;
  tandem::v1::ToTrainer message;
  message.mutable_profile()->set_id(kId);
  message.mutable_profile()->set_steps(steps);
  message.mutable_profile()->set_serialized(true);
  daemon.Send(0, message);
  Recorded recorded;
  for (int rank = 0; rank < ranks; ++rank) {
    const auto last = daemon.WaitFor(
        rank, [](const FromTrainer& m) { return m.has_profiled() && m.profiled().last(); },
        absl::Minutes(10));
    if (!last.has_value()) {
      std::fprintf(stderr, "rank %d ended before its steps were recorded; give the job more steps\n", rank);
      std::exit(1);
    }
    recorded.last_step = last->profiled().timeline().step();
    for (const FromTrainer& said : daemon.MessagesOf(rank)) {
      if (said.has_profiled()) {
        recorded.steps.push_back(said.profiled().timeline());
      }
    }
  }
  return recorded;
}

// Milliseconds of the recorded program on the slowest rank, the median of the steps.
double ProgramMilliseconds(const tandem::plan::JobPlan& plan, const Recorded& recorded) {
  std::map<int64_t, int64_t> slowest;  // step → nanoseconds
  for (const tandem::v1::StepTimeline& step : recorded.steps) {
    if (!step.serialized()) {
      const int64_t time = tandem::schedules::StepNanoseconds(tandem::plan::ProgramOf(plan, step),
                                                              tandem::plan::ToTimeline(step));
      slowest[step.step()] = std::max(slowest[step.step()], time);
    }
  }
  std::vector<double> times;
  for (const auto& [step, time] : slowest) {
    times.push_back(static_cast<double>(time));
  }
  return tandem::bench::Median(std::move(times)) * 1e-6;
}

bool WriteProfile(const tandem::plan::JobPlan& plan, const Recorded& recorded, const char* path) {
  const auto base = tandem::schedules::PresetProfile("cpu");
  std::ofstream file(path);
  file << tandem::schedules::ProfileToJson(
      tandem::plan::RecordedProfile(plan, recorded.steps, base.value(), plan.topology.world));
  file.close();
  return file.good();
}

}  // namespace

int main(int argc, char** argv) {
  const bool profile = argc == 7 && std::string(argv[4]) == "--profile" && std::atoi(argv[5]) > 0;
  if (argc != 4 && !profile) {
    std::fprintf(
        stderr,
        "usage: tandem-bench-step JOB.yaml PATH_OF_TANDEM_TRAINER WARMUP_STEPS [--profile STEPS FILE]\n");
    return 2;
  }
  const tandem::v1::JobSpec resolved = tandem::bench::ReadJobOrExit(argv[1]);
  const int64_t warmup = std::atoll(argv[3]);
  const int64_t steps = resolved.training().steps();

  tandem::trainer::FakeDaemon daemon(argv[2], tandem::trainer::AssignmentOf(resolved),
                                     tandem::platform::BuildVersion());
  for (int rank = 0; rank < resolved.parallelism().ranks(); ++rank) {
    daemon.StartRank(rank);
  }
  const auto wait_for = [&](int64_t step) {
    const auto report = daemon.WaitFor(
        0, [step](const FromTrainer& m) { return m.has_report() && m.report().step() == step; },
        absl::Minutes(10));
    if (!report.has_value()) {
      std::fprintf(stderr, "rank 0 ended before step %ld\n", static_cast<long>(step));
      std::exit(1);
    }
    return report->report();
  };
  wait_for(warmup);
  nlohmann::ordered_json result = {{"system", "tandem"}};
  int64_t before = warmup;
  if (profile) {
    const Recorded recorded = Record(daemon, resolved.parallelism().ranks(), std::atoi(argv[5]));
    before = recorded.last_step + 1;
    if (before >= steps) {
      std::fprintf(stderr, "no steps are left to time behind the recorded ones; give the job more\n");
      return 1;
    }
    const tandem::plan::JobPlan plan = tandem::plan::MakeJobPlan(resolved);
    if (const absl::Status same = tandem::plan::CheckRecorded(plan, recorded.steps); !same.ok()) {
      std::fprintf(stderr, "%s\n", std::string(same.message()).c_str());
      return 1;
    }
    if (!WriteProfile(plan, recorded, argv[6])) {
      std::fprintf(stderr, "%s cannot be written\n", argv[6]);
      return 1;
    }
    result["program_ms"] = ProgramMilliseconds(plan, recorded);
    wait_for(before);
  }
  const auto start = std::chrono::steady_clock::now();
  const tandem::v1::StepReport last = wait_for(steps);
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() /
                         static_cast<double>(steps - before);
  result["ms_per_step"] = seconds * 1e3;
  result["tokens_per_second"] = static_cast<double>(last.tokens()) / seconds;
  result["loss"] = last.loss();
  const std::string machine = resolved.resources().device() == tandem::v1::DEVICE_CUDA
                                  ? tandem::bench::GpuName()
                                  : tandem::bench::ProcessorName();
  std::printf("%s\n", tandem::bench::ResultLine(std::move(result), machine).c_str());
  return 0;
}
