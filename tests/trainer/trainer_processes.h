#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>

#include "absl/time/time.h"
#include "link/exit_code.h"
#include "platform/build_info.h"
#include "tandem/v1/job.pb.h"
#include "tests/trainer/fake_daemon.h"

namespace tandem::trainer {

// A job on real trainer processes, a slot each; the test is their daemon. What is still running at the end
// is killed, and the folder removed.
class TrainerProcesses : public testing::Test {
 protected:
  // program: the trainer's path. patience: for what is to come at all.
  TrainerProcesses(std::string program, absl::Duration patience);
  ~TrainerProcesses() override;

  // Validates, resolves and starts spec_, with as many ranks as it says. device: what a worker would have
  // made of resources.device.
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
  std::unique_ptr<FakeDaemon> daemon_;
};

}  // namespace tandem::trainer
