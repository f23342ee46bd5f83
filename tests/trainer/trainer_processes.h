// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/time/time.h"
#include "link/exit_code.h"
#include "platform/build_info.h"
#include "tandem/v1/job.pb.h"
#include "tests/trainer/fake_daemon.h"

namespace tandem::trainer {

// A job on real trainer processes, one for each slot; the test is their daemon. At the end kills the
// processes that still run, and removes the folder.
class TrainerProcesses : public testing::Test {
 protected:
  // `program` is the trainer's path. `patience` is the longest wait for a message or an end.
  TrainerProcesses(std::string program, absl::Duration patience);
  ~TrainerProcesses() override;

  // Validates, resolves and starts spec_, with its number of ranks. `device` is the device that a worker
  // would have chosen for resources.device.
  void Start(v1::Device device, int attempt = 1);

  std::optional<v1::FromTrainer> WaitForReport(int64_t step);  // of rank 0
  std::optional<v1::FromTrainer> WaitForFailed(int rank);

  void ExpectExit(int rank, int code, absl::Duration within);
  void ExpectExit(int rank, link::ExitCode code, absl::Duration within) {
    ExpectExit(rank, static_cast<int>(code), within);
  }

  const std::string program_;
  const absl::Duration patience_;
  std::string folder_;
  v1::JobSpec spec_;  // the test fills it before Start
  std::string build_ = platform::BuildVersion();
  // Changes each group of the assignment; empty: no change.
  std::function<void(v1::GroupList&)> change_group_;
  std::unique_ptr<FakeDaemon> daemon_;
};

}  // namespace tandem::trainer
