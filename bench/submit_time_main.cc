// SPDX-License-Identifier: Apache-2.0
// How long the controller's engine takes for a submission while LIVE jobs are live: medians over 200 jobs
// that save checkpoints, from the request to its durable answer, and how much of that the commit takes.
//
// Usage: tandem-bench-submit FOLDER [LIVE]...     (a folder that is made and removed; 0 1000 9500)

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/synchronization/notification.h"
#include "bench/median.h"
#include "controller/engine.h"
#include "controller/store/store.h"
#include "jobspec/jobspec.h"
#include "platform/clock.h"
#include "platform/random.h"

namespace {

using tandem::controller::Engine;
using tandem::controller::State;
using tandem::controller::Store;
using tandem::controller::Submit;

constexpr int kMeasured = 200;

void Require(const absl::Status& status) {
  if (!status.ok()) {
    std::cerr << status.message() << "\n";
    std::exit(1);
  }
}

Submit JobNumber(int number) {
  const std::string name = "job-" + std::to_string(number);
  Submit job;
  job.id = "id-" + name;
  job.owner = "local";
  job.request_id = "request-" + name;
  job.submitted = tandem::jobspec::ReadText(
                      "{name: " + name +
                          ", model: {preset: llama-tiny}, data: {train: /data}, training: {steps: 10}, "
                          "parallelism: {ranks: 2}, checkpoint: {directory: /shared/runs/" +
                          name + "}}",
                      "")
                      .spec;
  job.resolved = tandem::jobspec::Resolve(job.submitted);
  return job;
}

void SubmitAndWait(Engine& engine, const Submit& job) {
  absl::Notification answered;
  engine.Post(job, [&answered](const Engine::Reply& reply) {
    Require(reply.status);
    answered.Notify();
  });
  answered.WaitForNotification();
}

void Measure(const std::string& folder, int live) {
  const absl::StatusOr<std::unique_ptr<Store>> store = Store::Open(folder, tandem::platform::SystemRandom());
  Require(store.status());
  absl::StatusOr<State> state = (*store)->Load();
  Require(state.status());
  std::vector<double> commits;
  Engine engine(**store, tandem::platform::SteadyClock(), *std::move(state),
                {.commit_seconds = [&commits](double seconds) { commits.push_back(1e3 * seconds); },
                 .no_room = Require,
                 .fatal = Require});
  engine.Start();
  for (int i = 0; i < live; ++i) {
    engine.Post(JobNumber(i), [](const Engine::Reply& reply) { Require(reply.status); });
  }
  SubmitAndWait(engine, JobNumber(live));  // after all of these
  commits.clear();
  std::vector<double> times;
  for (int i = 1; i <= kMeasured; ++i) {
    const Submit job = JobNumber(live + i);
    const auto start = std::chrono::steady_clock::now();
    SubmitAndWait(engine, job);
    times.push_back(
        std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count());
  }
  engine.Stop();
  std::cout << live << " live jobs: a submission " << tandem::bench::Median(times) << " ms, its commit "
            << tandem::bench::Median(commits) << " ms\n";
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2 || std::filesystem::exists(argv[1])) {
    std::cerr << "usage: tandem-bench-submit FOLDER [LIVE]...; the folder must not be there\n";
    return 2;
  }
  const std::string folder = argv[1];
  std::vector<int> numbers = {0, 1000, 9500};
  if (argc > 2) {
    numbers.clear();
    for (int i = 2; i < argc; ++i) {
      int live = 0;
      if (!absl::SimpleAtoi(argv[i], &live) || live < 0) {
        std::cerr << "LIVE is a number of jobs, 0 or more; not '" << argv[i] << "'\n";
        return 2;
      }
      numbers.push_back(live);
    }
  }
  for (const int live : numbers) {
    Measure(folder, live);
    std::filesystem::remove_all(folder);
  }
  return 0;
}
