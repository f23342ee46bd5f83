// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <signal.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "checkpoint/owner.h"
#include "jobspec/jobspec.h"
#include "plan/job_plan.h"
#include "platform/build_info.h"
#include "platform/files.h"
#include "tests/trainer/trainer_processes.h"
#include "trainer/step_reports.h"

namespace tandem::trainer {
namespace {

using link::ExitCode;

// Real tandem-trainer processes over Gloo; the test is their daemon.

constexpr absl::Duration kPatience = absl::Seconds(120);
constexpr absl::Duration kSoon = absl::Seconds(30);  // far from every timeout that would end it otherwise

class ProcessTest : public TrainerProcesses {
 protected:
  ProcessTest() : TrainerProcesses(TRAINER_PROGRAM, kPatience) {
    v1::Model& model = *spec_.mutable_model();
    model.set_hidden_size(16);
    model.set_intermediate_size(32);
    model.set_num_hidden_layers(2);
    model.set_num_attention_heads(2);
    model.set_vocab_size(256);
    spec_.mutable_data()->set_train(TRAINER_TEXT);
    v1::Training& training = *spec_.mutable_training();
    training.set_steps(1'000'000);  // until stopped
    training.set_sequence_length(16);
    training.set_micro_batch_size(1);
    training.set_global_batch_size(4);
    training.set_validate_every_steps(3);
    training.set_validation_batches(1);
    spec_.mutable_parallelism()->set_ranks(2);
  }

  void Start() { TrainerProcesses::Start(v1::DEVICE_CPU, kAttempt); }

  // On a file of zeros that takes no room.
  void ValidateForHours() {
    const std::string path = folder_ + "/held-out";
    std::ofstream(path) << "text";
    std::filesystem::resize_file(path, 1 << 30);
    spec_.mutable_data()->set_validation(path);
    spec_.mutable_training()->set_validation_batches(1'000'000);
  }

  // Starts a job that saves there, and waits for its second step.
  void StartSaving() {
    spec_.mutable_checkpoint()->set_directory(directory_);
    Start();
    ASSERT_TRUE(WaitForReport(2).has_value());
  }

  bool IsReleased() const {
    return absl::IsNotFound(checkpoint::ReadOwner(platform::SystemFiles(), directory_).status());
  }

  void AwaitInstruction(int rank) {
    const absl::Time deadline = absl::Now() + kPatience;
    while (daemon_->page(rank).instruction < 0 && absl::Now() < deadline) {
      std::this_thread::yield();
    }
    EXPECT_GE(daemon_->page(rank).instruction, 0);
  }

  // The error with which a rank answers a request; empty: it is done.
  std::string AnswerTo(int rank, uint64_t id) {
    const auto done = daemon_->WaitFor(
        rank, [&](const auto& m) { return m.request_done() == id; }, kPatience);
    return done.has_value() ? done->request_error() : "no answer";
  }

  // The error of a save that is asked for.
  std::string ErrorOfSave(uint64_t id) {
    daemon_->Request(1, v1::DESIRED_CHECKPOINT_AND_GO_ON, id);
    return AnswerTo(1, id);
  }

  std::vector<int64_t> SavedSteps() {
    std::vector<int64_t> steps;
    for (const v1::FromTrainer& message : daemon_->MessagesOf(0)) {
      if (message.has_checkpoint()) {
        steps.push_back(message.checkpoint().step());
      }
    }
    return steps;
  }

  int64_t LastReportedStep() {
    int64_t last = 0;
    for (const v1::FromTrainer& message : daemon_->MessagesOf(0)) {
      last = message.has_report() ? message.report().step() : last;
    }
    return last;
  }

  // Why a rank says that it failed.
  v1::Cause CauseOf(int rank) {
    const auto failed = WaitForFailed(rank);
    EXPECT_TRUE(failed.has_value()) << "rank " << rank << " says nothing";
    return failed.has_value() ? failed->failed() : v1::Cause();
  }

  static constexpr int kAttempt = 3;
  std::string directory_ = folder_ + "/checkpoints";
};

TEST_F(ProcessTest, JobRunsAndReportsEverything) {
  spec_.mutable_training()->set_steps(6);
  spec_.mutable_checkpoint()->set_directory(directory_);
  Start();
  ExpectExit(0, ExitCode::kDone, kPatience);
  ExpectExit(1, ExitCode::kDone, kPatience);
  const plan::JobPlan plan = plan::MakeJobPlan(jobspec::Resolve(spec_));
  for (int rank = 0; rank < 2; ++rank) {
    const auto finished = daemon_->WaitFor(
        rank, [](const auto& m) { return m.has_finished(); }, kPatience);
    ASSERT_TRUE(finished.has_value());
    EXPECT_EQ(finished->finished().step(), 6);
    const v1::FromTrainer first =
        daemon_->MessagesOf(rank)[rank == 0 ? 1 : 0];  // rank 0 sends the table first
    ASSERT_TRUE(first.has_ready());
    EXPECT_EQ(first.ready().program_digest(), plan.program_digest);
    EXPECT_EQ(first.ready().layout_digest(), plan.parameters_digest);
    EXPECT_EQ(first.ready().data_digest(), daemon_->MessagesOf(0)[1].ready().data_digest());
    EXPECT_FALSE(first.ready().data_digest().empty());
    EXPECT_EQ(first.ready().build(), platform::BuildVersion());
    EXPECT_EQ(daemon_->page(rank).attempt, kAttempt);
    EXPECT_EQ(daemon_->page(rank).step, 6);
    EXPECT_EQ(daemon_->page(rank).phase, v1::RANK_PHASE_FINISHED);
    EXPECT_GE(daemon_->page(rank).instruction, 0);
    EXPECT_GT(daemon_->page(rank).collectives[0], 0u);
  }
  const v1::ParameterTable table = daemon_->MessagesOf(0)[0].table();
  int64_t steps = 0;
  bool validated_start = false;
  for (const v1::FromTrainer& message : daemon_->MessagesOf(0)) {
    if (!message.has_report()) {
      continue;
    }
    const v1::StepReport& report = message.report();
    EXPECT_EQ(report.attempt(), kAttempt);
    if (report.step() == 0) {  // the validation before the first update
      EXPECT_EQ(steps, 0);
      EXPECT_GT(report.scalars().at("validation_loss"), 0);
      validated_start = true;
      continue;
    }
    EXPECT_EQ(report.step(), ++steps);
    EXPECT_EQ(report.tokens(), 4 * 16);
    EXPECT_GT(report.loss(), 0);
    EXPECT_GT(report.grad_norm(), 0);
    EXPECT_EQ(report.norms().table_digest(), table.digest());
    EXPECT_EQ(report.norms().weight_size(), table.parameters_size());
    EXPECT_EQ(report.norms().update_size(), table.parameters_size());
    for (const auto* largest :
         {&report.norms().max_abs(), &report.norms().gradient_max_abs(), &report.norms().update_max_abs()}) {
      EXPECT_EQ(largest->size(), table.parameters_size());
    }
    for (int i = 0; i < table.parameters_size(); ++i) {
      EXPECT_GE(report.norms().weight(i), report.norms().max_abs(i));
      EXPECT_GE(report.norms().max_abs(i), report.norms().rms(i));
    }
    EXPECT_EQ(report.scalars().contains("validation_loss"), report.step() % 3 == 0);
  }
  EXPECT_TRUE(validated_start);
  EXPECT_EQ(steps, 6);
  EXPECT_EQ(table.parameters(0).name(), "model.embed_tokens.weight");
  const auto committed = daemon_->WaitFor(
      0, [](const auto& m) { return m.has_checkpoint(); }, kPatience);
  ASSERT_TRUE(committed.has_value());
  EXPECT_EQ(committed->checkpoint().step(), 6);
  EXPECT_TRUE(std::filesystem::is_directory(committed->checkpoint().path()));
  EXPECT_TRUE(std::filesystem::exists(directory_ + "/metrics.jsonl"));
}

TEST_F(ProcessTest, OtherFrozenUnitsChangeTheTablesDigest) {
  const plan::JobPlan all = plan::MakeJobPlan(jobspec::Resolve(spec_));
  spec_.mutable_training()->set_frozen("embedding");
  const plan::JobPlan rest = plan::MakeJobPlan(jobspec::Resolve(spec_));
  ASSERT_NE(all.parameters_digest, rest.parameters_digest);
  const v1::ParameterTable table = TableOf(plan::TrainedParameters(all));
  const v1::ParameterTable smaller = TableOf(plan::TrainedParameters(rest));
  EXPECT_EQ(table.parameters(0).name(), "model.embed_tokens.weight");
  EXPECT_NE(smaller.parameters(0).name(), "model.embed_tokens.weight");
  EXPECT_NE(table.digest(), smaller.digest());
  EXPECT_EQ(table.digest(), TableOf(plan::TrainedParameters(all)).digest());
}

// Only of a rank that is stepping can the controller say that it does not move.
TEST_F(ProcessTest, FirstValidationCountsAsStepping) {
  ValidateForHours();
  Start();
  AwaitInstruction(0);
  EXPECT_EQ(daemon_->page(0).phase, v1::RANK_PHASE_STEPPING);
}

TEST_F(ProcessTest, StopEndsALongFirstValidation) {
  ValidateForHours();
  spec_.mutable_checkpoint()->set_directory(directory_);
  Start();
  AwaitInstruction(0);
  daemon_->Request(1, v1::DESIRED_STOP_AFTER_CHECKPOINT, 12);
  ExpectExit(0, ExitCode::kPreempted, kSoon);
  ExpectExit(1, ExitCode::kPreempted, kSoon);
}

TEST_F(ProcessTest, RankKilledInAValidationEndsTheOthers) {
  ValidateForHours();
  Start();
  AwaitInstruction(0);
  kill(daemon_->pid(1), SIGKILL);
  ExpectExit(0, ExitCode::kPeerLost, kSoon);
  const v1::Cause cause = CauseOf(0);
  EXPECT_EQ(cause.reason(), "PeerLost");
  EXPECT_NE(cause.instruction(), "");
  EXPECT_NE(cause.group(), "");
}

TEST_F(ProcessTest, SurvivorReportsItsPlaceAndReleasesTheDirectory) {
  StartSaving();
  ASSERT_TRUE(WaitForReport(5).has_value());
  kill(daemon_->pid(1), SIGKILL);
  ExpectExit(0, ExitCode::kPeerLost, kSoon);
  const v1::Cause cause = CauseOf(0);
  EXPECT_EQ(cause.class_(), v1::FAILURE_CLASS_PEER_LOST);
  EXPECT_EQ(cause.reason(), "PeerLost");
  EXPECT_EQ(cause.rank(), 0);
  EXPECT_GE(cause.step(), 5);
  EXPECT_NE(cause.instruction(), "");
  EXPECT_NE(cause.group(), "");
  EXPECT_NE(cause.message(), "");
  EXPECT_TRUE(IsReleased());
}

// The other rank may notice the loss of this one before a request of its own.
TEST_F(ProcessTest, StopNowEndsAtOnce) {
  Start();
  ASSERT_TRUE(WaitForReport(2).has_value());
  daemon_->Request(1, v1::DESIRED_STOP_NOW, 0);
  ExpectExit(1, ExitCode::kStopped, kSoon);
  ExpectExit(0, ExitCode::kPeerLost, kSoon);
}

TEST_F(ProcessTest, StopNowGivesTheCheckpointDirectoryBack) {
  StartSaving();
  ASSERT_FALSE(IsReleased());
  daemon_->Request(0, v1::DESIRED_STOP_NOW, 0);
  ExpectExit(0, ExitCode::kStopped, kSoon);
  EXPECT_TRUE(IsReleased());
}

TEST_F(ProcessTest, StopSentToOneRankStopsAll) {
  spec_.mutable_training()->set_validate_every_steps(0);  // in one, both requests may come at the same step
  StartSaving();
  ASSERT_EQ(ErrorOfSave(11), "");
  daemon_->Request(1, v1::DESIRED_STOP_AFTER_CHECKPOINT, 12);
  ExpectExit(0, ExitCode::kPreempted, kPatience);
  ExpectExit(1, ExitCode::kPreempted, kPatience);
  EXPECT_EQ(AnswerTo(1, 12), "");
  // All that rank 0 said: its process may be gone before the daemon has read it.
  daemon_->WaitFor(
      0, [](const auto&) { return false; }, kPatience);
  const std::vector<int64_t> checkpoints = SavedSteps();
  ASSERT_EQ(checkpoints.size(), 2u);
  EXPECT_EQ(checkpoints[1], LastReportedStep());
}

// It was stopped, or its machine swaps, while the job is drained. The checkpoint that the job has just saved
// is the one that it goes on from.
TEST_F(ProcessTest, WakingDaemonGetsTheLastReports) {
  StartSaving();
  daemon_->SetFrozen(0, true);
  const int64_t enough = daemon_->page(0).step + 300;  // reports: more than a socket buffer takes
  const absl::Time deadline = absl::Now() + kPatience;
  while (daemon_->page(0).step < enough && absl::Now() < deadline) {
    std::this_thread::yield();
  }
  daemon_->Request(0, v1::DESIRED_STOP_AFTER_CHECKPOINT, 12);
  ExpectExit(1, ExitCode::kPreempted, kPatience);
  EXPECT_FALSE(daemon_->WaitExit(0, absl::Milliseconds(1500)).has_value()) << "it leaves with unsent reports";
  daemon_->SetFrozen(0, false);
  EXPECT_EQ(AnswerTo(0, 12), "");
  ExpectExit(0, ExitCode::kPreempted, kPatience);
  EXPECT_GE(LastReportedStep(), enough);
  ASSERT_FALSE(SavedSteps().empty());
  EXPECT_EQ(SavedSteps().back(), LastReportedStep());
}

TEST_F(ProcessTest, FailedSaveAnswersTheRequest) {
  StartSaving();
  std::filesystem::rename(directory_, directory_ + ".away");
  std::ofstream(directory_) << "not a folder";
  const std::string error = ErrorOfSave(11);
  EXPECT_NE(
      error.find("checkpoint: rank 0: checkpoint.directory " + directory_ + " cannot be reached (look at " +
                 directory_ + ": Not a directory), so nothing is written"),
      std::string::npos)
      << error;
  const auto warning = daemon_->WaitFor(
      0, [](const auto& m) { return m.has_checkpoint_warning(); }, kPatience);
  ASSERT_TRUE(warning.has_value());
  EXPECT_EQ(warning->checkpoint_warning().problem(), v1::CHECKPOINT_PROBLEM_SAVE_FAILED);
  EXPECT_GT(warning->checkpoint_warning().step(), 0);
  EXPECT_EQ(warning->checkpoint_warning().message(), error);

  std::filesystem::remove(directory_);
  std::filesystem::rename(directory_ + ".away", directory_);
  EXPECT_EQ(ErrorOfSave(12), "");
}

// As when the file system of checkpoint.directory is unmounted: what lies beneath is another disk.
TEST_F(ProcessTest, NothingIsWrittenBelowAnAbsentMount) {
  directory_ = folder_ + "/mount/checkpoints";
  spec_.mutable_training()->set_validate_every_steps(0);  // the line of a step comes behind its validation
  StartSaving();
  std::filesystem::rename(folder_ + "/mount", folder_ + "/away");
  EXPECT_EQ(
      ErrorOfSave(11),
      "checkpoint: rank 0: checkpoint.directory " + directory_ +
          " is no longer there (its file system was unmounted, or the folder was renamed or removed), so "
          "nothing is written; bring it back before the next save, or make it anew where it was removed");
  EXPECT_FALSE(std::filesystem::exists(folder_ + "/mount"));

  std::filesystem::create_directories(folder_ + "/new/checkpoints/beneath");
  std::filesystem::rename(folder_ + "/new", folder_ + "/mount");  // at once: an empty one would be taken
  EXPECT_EQ(ErrorOfSave(12),
            "checkpoint: rank 0: checkpoint.directory " + directory_ +
                " is another folder than at the start of the attempt (a file system was mounted or unmounted "
                "there, or the folder was replaced), so nothing is written; bring the first one back before "
                "the next save, or, if it is gone, leave an empty one there, on the same file system");
  const auto entries = platform::SystemFiles().List(directory_);
  ASSERT_TRUE(entries.ok());
  EXPECT_EQ(*entries, std::vector<std::string>{"beneath"});

  std::filesystem::remove_all(folder_ + "/mount");
  std::filesystem::rename(folder_ + "/away", folder_ + "/mount");
  EXPECT_EQ(ErrorOfSave(13), "");

  // Removed and made again: another folder, also where the file system gives a removed one's number again.
  std::filesystem::create_directories(folder_ + "/new/checkpoints");
  std::filesystem::remove_all(folder_ + "/mount");
  std::filesystem::rename(folder_ + "/new", folder_ + "/mount");
  std::string error = "not tried";
  const absl::Time deadline = absl::Now() + kSoon;
  for (uint64_t id = 14; !error.empty() && absl::Now() < deadline; ++id) {  // rank 0 takes it within a second
    error = ErrorOfSave(id);
  }
  EXPECT_EQ(error, "");
  EXPECT_EQ(ErrorOfSave(1000), "");  // which the lines of its steps come before
  EXPECT_TRUE(std::filesystem::exists(directory_ + "/metrics.jsonl"));
  EXPECT_TRUE(std::filesystem::exists(directory_ + "/tensorboard"));
}

TEST_F(ProcessTest, StolenDirectoryEndsTheJob) {
  StartSaving();
  const checkpoint::Owner thief{.job = "ba9876543210", .name = "thief", .host = "elsewhere"};
  absl::Status taken = absl::FailedPreconditionError("not tried");
  for (int i = 0; i < 20 && absl::IsFailedPrecondition(taken); ++i) {  // its owner may renew it meanwhile
    taken = checkpoint::TakeOwnership(platform::SystemFiles(), directory_, thief, [] {}).status();
  }
  ASSERT_TRUE(taken.ok()) << taken;
  ExpectExit(0, ExitCode::kUserError, kSoon);
  const v1::Cause cause = CauseOf(0);
  EXPECT_EQ(cause.class_(), v1::FAILURE_CLASS_USER);
  EXPECT_EQ(cause.reason(), "CheckpointDirectoryLost");
  const std::string& message = cause.message();
  EXPECT_NE(message.find("belongs to job ba9876543210 (thief) on host elsewhere now"), std::string::npos)
      << message;
  EXPECT_NE(message.find("job 0123456789ab (process, attempt 3) on host "), std::string::npos) << message;
  ExpectExit(1, ExitCode::kPeerLost, kSoon);
}

TEST_F(ProcessTest, AClosedChannelEndsTheTrainer) {
  Start();
  ASSERT_TRUE(WaitForReport(2).has_value());
  daemon_->CloseChannel(1);
  ExpectExit(1, ExitCode::kStopped, kSoon);
  ExpectExit(0, ExitCode::kPeerLost, kSoon);
}

TEST_F(ProcessTest, OrphanedTrainerReleasesTheDirectory) {
  StartSaving();
  daemon_->page(0).orphan_deadline_boottime_ns = 1;
  ExpectExit(0, ExitCode::kFenced, kSoon);
  EXPECT_EQ(CauseOf(0).reason(), "ControllerLost");
  EXPECT_TRUE(IsReleased());
}

TEST_F(ProcessTest, AnotherBuildIsRefused) {
  build_ = "0.0.0+other";
  Start();
  ExpectExit(0, 1, kPatience);
  EXPECT_EQ(CauseOf(0).reason(), "BuildMismatch");
}

// Of the two axes of HSDP: members in another order, and the lists of one axis under the name of the other.
TEST_F(ProcessTest, OtherGroupsAreRefusedByEveryRank) {
  spec_.mutable_parallelism()->set_ranks(4);
  spec_.mutable_parallelism()->set_replicas(2);
  spec_.mutable_parallelism()->mutable_fsdp()->set_strategy(v1::STRATEGY_HSDP);
  const plan::JobPlan plan = plan::MakeJobPlan(jobspec::Resolve(spec_));
  const std::string& inner = plan.options.dense.inner_group;
  const std::string& outer = plan.options.dense.outer_group;
  const auto reverse = [&](v1::GroupList& group) {
    if (group.name() == outer) {
      group.mutable_ranks()->SwapElements(0, 1);
    }
  };
  const auto swap_axes = [&](v1::GroupList& group) {
    const std::string name = group.name();
    if (name == inner || name == outer) {
      group.set_name(name == inner ? outer : inner);
    }
  };
  for (const std::function<void(v1::GroupList&)>& change :
       {std::function<void(v1::GroupList&)>(reverse), std::function<void(v1::GroupList&)>(swap_axes)}) {
    change_group_ = change;
    Start();
    for (int rank = 0; rank < 4; ++rank) {
      ExpectExit(rank, 1, kPatience);
      const v1::Cause cause = CauseOf(rank);
      EXPECT_EQ(cause.class_(), v1::FAILURE_CLASS_INFRASTRUCTURE);
      EXPECT_EQ(cause.reason(), "BuildMismatch");
      EXPECT_NE(cause.message().find("in this trainer's plan; install controller and workers"),
                std::string::npos)
          << cause.message();
    }
  }
}

TEST_F(ProcessTest, TooShortDataIsTheUsersError) {
  spec_.mutable_training()->set_sequence_length(1 << 20);
  spec_.mutable_training()->set_validate_every_steps(0);
  Start();
  ExpectExit(0, ExitCode::kUserError, kPatience);
  EXPECT_EQ(CauseOf(0).class_(), v1::FAILURE_CLASS_USER);
}

}  // namespace
}  // namespace tandem::trainer
