// SPDX-License-Identifier: Apache-2.0
#include "tests/trainer/trainer_processes.h"

#include <stdlib.h>

#include <filesystem>
#include <utility>

#include "jobspec/jobspec.h"

namespace tandem::trainer {

TrainerProcesses::TrainerProcesses(std::string program, absl::Duration patience)
    : program_(std::move(program)),
      patience_(patience),
      folder_(std::filesystem::temp_directory_path() / "tandem-process-XXXXXX") {
  EXPECT_NE(mkdtemp(folder_.data()), nullptr);
  spec_.set_name("process");
}

TrainerProcesses::~TrainerProcesses() {
  daemon_.reset();
  std::filesystem::remove_all(folder_);
}

void TrainerProcesses::Start(v1::Device device, int attempt) {
  ASSERT_EQ(jobspec::ToText(jobspec::Validate(spec_)), "");
  v1::JobSpec resolved = jobspec::Resolve(spec_);
  resolved.mutable_resources()->set_device(device);
  v1::Assignment assignment = AssignmentOf(resolved, attempt);
  for (int group = 0; change_group_ && group < assignment.groups_size(); ++group) {
    change_group_(*assignment.mutable_groups(group));
  }
  daemon_ = std::make_unique<FakeDaemon>(program_, std::move(assignment), build_);
  for (int rank = 0; rank < resolved.parallelism().ranks(); ++rank) {
    daemon_->StartRank(rank);
  }
}

std::optional<v1::FromTrainer> TrainerProcesses::WaitForReport(int64_t step) {
  return daemon_->WaitFor(
      0, [step](const v1::FromTrainer& m) { return m.has_report() && m.report().step() == step; }, patience_);
}

std::optional<v1::FromTrainer> TrainerProcesses::WaitForFailed(int rank) {
  return daemon_->WaitFor(
      rank, [](const v1::FromTrainer& m) { return m.has_failed(); }, patience_);
}

void TrainerProcesses::ExpectExit(int rank, int code, absl::Duration within) {
  const auto exit = daemon_->WaitExit(rank, within);
  ASSERT_TRUE(exit.has_value()) << "rank " << rank << " is still running";
  EXPECT_EQ(exit->code, code) << "rank " << rank << ", signal " << exit->signal;
}

}  // namespace tandem::trainer
