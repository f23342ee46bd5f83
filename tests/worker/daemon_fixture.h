// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>
#include <sys/types.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/platform/temporary_folder.h"
#include "tests/worker/core_harness.h"
#include "tests/worker/fake_controller.h"
#include "tests/worker/worker_process.h"

namespace tandem::worker {

using Seen = FakeController::Seen;

inline std::string ReadAll(const std::string& path) {
  std::ifstream file(path);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

// A fake controller and a folder; the test starts the daemon.
class DaemonTest : public testing::Test {
 protected:
  DaemonTest() {
    temporary_.Write("data.txt", std::string(1 << 16, 'x'));
    controller_ = std::make_unique<FakeController>(folder_ + "/socket");
  }

  void StartWorker(std::vector<std::string> more = {}) {
    worker_ = std::make_unique<WorkerProcess>(WorkerProcess::Options{
        .controller = controller_->address(), .state_folder = folder_ + "/state", .more = std::move(more)});
  }

  // `script` says what the fake trainer does (fake_trainer_main.cc).
  v1::Assignment Job(const std::string& script, int ranks, int attempt = 1) const {
    v1::Assignment assignment = CoreHarness::Job("0123456789ab", ranks, attempt);
    assignment.mutable_resolved()->set_name(script);
    assignment.mutable_resolved()->mutable_data()->set_train(folder_ + "/data.txt");
    return assignment;
  }

  static AttemptKey Key(int attempt = 1) { return {.job = "0123456789ab", .attempt = attempt}; }

  static const v1::AttemptStatus* Find(const Seen& seen, int attempt = 1) {
    const auto it = seen.statuses.find(Key(attempt));
    return it == seen.statuses.end() ? nullptr : &it->second;
  }

  static bool Ended(const Seen& seen) {
    const v1::AttemptStatus* const status = Find(seen);
    return status != nullptr && status->ended();
  }

  // Starts the worker for the job, and waits until it has ended.
  bool RunToItsEnd(const v1::Assignment& job) {
    controller_->Want({job});
    StartWorker();
    return controller_->WaitFor(Ended);
  }

  // Starts the worker for the job, and waits until all ranks have reached `step`.
  bool RunToStep(int64_t step, const v1::Assignment& job) {
    controller_->Want({job});
    StartWorker();
    return WaitForStep(step);
  }

  bool WaitForHellos(size_t count) {
    return controller_->WaitFor([&](const Seen& seen) { return seen.hellos.size() == count; });
  }

  // Waits until all ranks have reached `step`.
  bool WaitForStep(int64_t step) {
    return controller_->WaitFor([&](const Seen& seen) {
      const v1::AttemptStatus* const status = Find(seen);
      return status != nullptr && status->ranks_size() > 0 &&
             std::all_of(status->ranks().begin(), status->ranks().end(), [&](const v1::RankStatus& rank) {
               return rank.phase() == v1::RANK_PHASE_STEPPING && rank.step() >= step;
             });
    });
  }

  std::vector<pid_t> Pids() const {
    std::vector<pid_t> pids;
    const Seen seen = controller_->seen();
    for (const v1::RankStatus& rank : Find(seen)->ranks()) {
      pids.push_back(static_cast<pid_t>(rank.pid()));
    }
    return pids;
  }

  v1::AttemptStatus Status() const { return *Find(controller_->seen()); }

  const platform::TemporaryFolder temporary_;
  const std::string& folder_ = temporary_.path();
  std::unique_ptr<FakeController> controller_;
  std::unique_ptr<WorkerProcess> worker_;
};

}  // namespace tandem::worker
