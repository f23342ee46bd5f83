// SPDX-License-Identifier: Apache-2.0
// The daemon as a process, with fake trainers as processes and a controller over real gRPC.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "tests/worker/daemon_fixture.h"
#include "worker/cause.h"

namespace tandem::worker {
namespace {

using testing::EndsWith;
using testing::HasSubstr;
using testing::StartsWith;

// Also where the machine stands still for some seconds.
constexpr absl::Duration kSoon = absl::Seconds(12);

TEST_F(DaemonTest, RunsAJobWithoutLosingReports) {
  ASSERT_TRUE(RunToItsEnd(Job("steps-50", 2)));
  const v1::AttemptStatus status = Status();
  for (const v1::RankStatus& rank : status.ranks()) {
    EXPECT_TRUE(rank.finished() && rank.exited() && !rank.has_cause()) << rank.DebugString();
    EXPECT_EQ(rank.ready().program_digest(), "fake");
  }
  EXPECT_TRUE(controller_->WaitFor([](const Seen& seen) { return seen.reports.size() == 50; }));
  const Seen seen = controller_->seen();
  EXPECT_EQ(seen.tables, 1);
  EXPECT_LT(seen.report_batches, 50) << "batched";
  EXPECT_EQ(seen.reports.at(50).attempt(), 1);
  EXPECT_EQ(seen.reports.at(50).norms().weight_size(), 2);
  EXPECT_THAT(seen.values.at("rank-1"), StartsWith("1 "));
  EXPECT_LE(seen.gets, 2) << "only of what no rank here has set yet";
  controller_->Want({}, {Key()});
  const absl::Time deadline = absl::Now() + absl::Seconds(30);
  while (access((folder_ + "/state/attempts/0123456789ab/attempt-1").c_str(), F_OK) == 0) {
    ASSERT_LT(absl::Now(), deadline) << "the record goes when the end is acknowledged";
    absl::SleepFor(absl::Milliseconds(2));
  }
}

TEST_F(DaemonTest, KilledRankEndsTheOthersAtOnce) {
  ASSERT_TRUE(RunToStep(5, Job("endless", 3)));
  const std::vector<pid_t> pids = Pids();
  const absl::Time start = absl::Now();
  kill(pids[1], SIGKILL);
  ASSERT_TRUE(controller_->WaitFor([](const Seen& seen) { return Find(seen)->ranks(1).exited(); }));
  EXPECT_LT(absl::Now() - start, kSoon);
  ASSERT_TRUE(controller_->WaitFor(Ended));
  EXPECT_LT(absl::Now() - start, kSoon);
  EXPECT_TRUE(WaitUntilGone(pids));
  const v1::AttemptStatus status = Status();
  const v1::Cause& cause = status.ranks(1).cause();
  EXPECT_EQ(cause.class_(), v1::FAILURE_CLASS_INFRASTRUCTURE);
  EXPECT_EQ(cause.signal(), SIGKILL);
  EXPECT_GE(cause.step(), 5);
  EXPECT_THAT(cause.message(), StartsWith("rank 1 was killed by signal 9 (SIGKILL) in step "));
  EXPECT_FALSE(status.ranks(1).stop_requested());
  EXPECT_EQ(status.ranks(0).cause().class_(), v1::FAILURE_CLASS_REQUESTED);
  EXPECT_TRUE(status.ranks(2).stop_requested());
}

// A process group has one for each of its uses, so there may be more of them than groups.
TEST_F(DaemonTest, CollectivesOfEveryCommunicatorAreReported) {
  ASSERT_TRUE(RunToStep(5, Job("endless", 2)));
  EXPECT_TRUE(controller_->WaitFor([](const Seen& seen) {
    const v1::RankStatus& rank = Find(seen)->ranks(1);
    return rank.collective_seq_size() == 3 && rank.collective_seq(0) >= 5 &&
           rank.collective_seq(2) == 3 * rank.collective_seq(0);
  }));
}

TEST_F(DaemonTest, StoppedRankIsReportedWithItsAge) {
  ASSERT_TRUE(RunToStep(5, Job("endless", 2)));
  const std::vector<pid_t> pids = Pids();
  kill(pids[1], SIGSTOP);
  ASSERT_TRUE(controller_->WaitFor([](const Seen& seen) {
    const v1::RankStatus& rank = Find(seen)->ranks(1);
    return rank.process_stopped() && rank.since_progress().seconds() >= 1;
  }));
  const v1::RankStatus stopped = Status().ranks(1);
  EXPECT_THAT(stopped.whereabouts(), StartsWith("in step "));
  EXPECT_FALSE(stopped.exited());
  EXPECT_FALSE(Status().ranks(0).process_stopped());
  kill(pids[1], SIGCONT);
  EXPECT_TRUE(controller_->WaitFor([&](const Seen& seen) {
    const v1::RankStatus& rank = Find(seen)->ranks(1);
    return !rank.process_stopped() && rank.step() > stopped.step() && rank.since_progress().seconds() == 0;
  }));
}

TEST_F(DaemonTest, CauseIsTheFailedRanksOwnWords) {
  ASSERT_TRUE(RunToItsEnd(Job("fail-at-5", 2)));
  const v1::Cause cause = Status().ranks(1).cause();
  EXPECT_EQ(cause.rank(), 1) << cause.DebugString();
  EXPECT_EQ(cause.class_(), v1::FAILURE_CLASS_USER);
  EXPECT_EQ(cause.reason(), "BadData");
  EXPECT_EQ(cause.step(), 5);
  EXPECT_EQ(Status().ranks(0).cause().class_(), v1::FAILURE_CLASS_REQUESTED) << "it was stopped for that";
}

TEST_F(DaemonTest, TrainerIgnoringStopIsKilledInTime) {
  ASSERT_TRUE(RunToStep(3, Job("deaf", 2)));
  const std::vector<pid_t> pids = Pids();
  v1::Assignment stop = Job("deaf", 2);
  stop.set_desired(v1::DESIRED_STOP_NOW);
  stop.set_reason("CancelledByUser");
  const absl::Time start = absl::Now();
  controller_->Want({stop});
  ASSERT_TRUE(controller_->WaitFor(Ended));
  EXPECT_LT(absl::Now() - start, kSoon);
  EXPECT_TRUE(WaitUntilGone(pids, absl::ZeroDuration()));
  EXPECT_EQ(Status().ranks(0).cause().reason(), "CancelledByUser");
}

TEST_F(DaemonTest, RankLeavingItsSocketIsNotAwaitedForever) {
  ASSERT_TRUE(RunToItsEnd(Job("silent", 1)));
  EXPECT_EQ(Status().ranks(0).cause().reason(), "LinkLost");
}

TEST_F(DaemonTest, ARankWhoseEndTakesLongHasFinished) {
  ASSERT_TRUE(RunToItsEnd(Job("lingers", 1)));
  const v1::RankStatus rank = Status().ranks(0);
  EXPECT_TRUE(rank.finished() && rank.exited() && !rank.has_cause()) << rank.DebugString();
}

TEST_F(DaemonTest, NextDaemonReportsTrainersThatDied) {
  ASSERT_TRUE(RunToStep(3, Job("deaf", 3)));
  const std::vector<pid_t> pids = Pids();
  worker_->Kill();
  EXPECT_TRUE(WaitUntilGone(pids, absl::Seconds(10)));
  StartWorker();
  ASSERT_TRUE(WaitForHellos(2));
  const Seen seen = controller_->seen();
  EXPECT_NE(seen.hellos[0].incarnation(), seen.hellos[1].incarnation());
  ASSERT_EQ(seen.hellos[1].inventory().attempts_size(), 1);
  const v1::AttemptStatus& status = seen.hellos[1].inventory().attempts(0);
  EXPECT_TRUE(status.ended());
  ASSERT_EQ(status.ranks_size(), 3);
  for (const v1::RankStatus& rank : status.ranks()) {
    EXPECT_TRUE(rank.exited());
    EXPECT_EQ(rank.cause().reason(), "WorkerLost");
  }
}

TEST_F(DaemonTest, ReturningControllerFindsEverythingUnchanged) {
  ASSERT_TRUE(RunToStep(3, Job("endless", 2)));
  const std::vector<pid_t> pids = Pids();
  // On another stream than the status that reported the step.
  ASSERT_TRUE(controller_->WaitFor([](const Seen& seen) { return !seen.reports.empty(); }));
  const int64_t last_report = controller_->seen().reports.rbegin()->first;
  controller_->StopServer();
  controller_->StartServer();
  ASSERT_TRUE(WaitForHellos(2));
  const v1::Hello hello = controller_->seen().hellos[1];
  EXPECT_EQ(hello.incarnation(), controller_->seen().hellos[0].incarnation());
  EXPECT_EQ(hello.highest_term(), 1);
  ASSERT_EQ(hello.inventory().attempts_size(), 1);
  EXPECT_FALSE(hello.inventory().attempts(0).ended());
  ASSERT_TRUE(controller_->WaitFor(
      [&](const Seen& seen) { return seen.reports.rbegin()->first > last_report + 100; }));
  EXPECT_EQ(Pids(), pids) << "nothing was restarted";
  const Seen seen = controller_->seen();
  EXPECT_EQ(static_cast<int64_t>(seen.reports.size()), seen.reports.rbegin()->first)
      << "no report is missing";
  EXPECT_GE(seen.tables, 2) << "once per stream";
}

TEST_F(DaemonTest, AttemptsEndSurvivesTheDaemon) {
  ASSERT_TRUE(RunToItsEnd(Job("exit-3-at-step-5", 1)));
  worker_->Kill();
  StartWorker();
  ASSERT_TRUE(WaitForHellos(2));
  const v1::Hello hello = controller_->seen().hellos[1];
  ASSERT_EQ(hello.inventory().attempts_size(), 1);
  EXPECT_EQ(hello.inventory().attempts(0).ranks(0).cause().exit_code(), 3);
}

TEST_F(DaemonTest, SigtermStopsTheRanksAndExitsWith0) {
  ASSERT_TRUE(RunToStep(3, Job("deaf", 2)));
  const std::vector<pid_t> pids = Pids();
  worker_->Signal(SIGTERM);
  const std::optional<int> status = worker_->Wait();
  ASSERT_TRUE(status.has_value());
  EXPECT_TRUE(WIFEXITED(*status) && WEXITSTATUS(*status) == 0) << *status;
  EXPECT_TRUE(WaitUntilGone(pids, absl::ZeroDuration()));
  EXPECT_TRUE(controller_->WaitFor(Ended)) << "reported before it left";
  EXPECT_TRUE(controller_->WaitFor([](const Seen& seen) { return seen.leaving; })) << "and that it leaves";
}

TEST_F(DaemonTest, AnUnopenableLogIsTheMachinesFault) {
  const std::string log = folder_ + "/state/logs/0123456789ab/attempt-1/rank-0.log";
  std::filesystem::create_directories(log);
  ASSERT_TRUE(RunToItsEnd(Job("steps-50", 1)));
  const v1::Cause cause = Status().ranks(0).cause();
  EXPECT_EQ(cause.class_(), v1::FAILURE_CLASS_INFRASTRUCTURE);
  EXPECT_EQ(cause.message(), "rank 0 could not be started: open " + log +
                                 ": it is a folder, not a regular file; its log lies in the worker's "
                                 "--state: repair that file system");
}

TEST_F(DaemonTest, FullStateFolderIsRefusedWithARemedy) {
  // No file may have a byte, as on a full disk; the pipe may.
  const std::string command =
      absl::StrCat("ulimit -f 0; exec ", TANDEM_WORKER, " --controller unix:", folder_, "/socket --state ",
                   folder_, "/state --trainer ", TANDEM_FAKE_TRAINER, " 2>&1");
  FILE* const worker = popen(command.c_str(), "r");
  ASSERT_NE(worker, nullptr);
  char line[1024] = {};
  EXPECT_NE(fgets(line, sizeof(line), worker), nullptr);
  EXPECT_EQ(line,
            "tandem-worker: --state: write " + folder_ +
                "/state/lock: File too large; make room on that file system, or give another --state\n");
  EXPECT_EQ(WEXITSTATUS(pclose(worker)), 1);
}

TEST_F(DaemonTest, ARefusedWorkerTriesLessAndLessOften) {
  controller_->Refuse();
  StartWorker();
  ASSERT_TRUE(controller_->WaitFor([](const Seen& seen) { return seen.hellos.size() >= 3; }));
  EXPECT_FALSE(
      controller_->WaitFor([](const Seen& seen) { return seen.hellos.size() > 15; }, absl::Seconds(2)));
}

TEST_F(DaemonTest, AControllerThatCannotBeReachedIsNamed) {
  WorkerProcess worker({.controller = "unix:" + folder_ + "/nobody",
                        .state_folder = folder_ + "/state",
                        .log = folder_ + "/log"});
  const absl::Time deadline = absl::Now() + absl::Seconds(20);
  while (ReadAll(folder_ + "/log").find("the controller cannot be reached; retrying") == std::string::npos) {
    ASSERT_LT(absl::Now(), deadline);
    absl::SleepFor(absl::Milliseconds(20));
  }
  EXPECT_THAT(ReadAll(folder_ + "/log"), HasSubstr("unix:" + folder_ + "/nobody"));
}

TEST_F(DaemonTest, MissingDataIsTheUsersError) {
  v1::Assignment job = Job("steps-50", 1);
  job.mutable_resolved()->mutable_data()->set_train(folder_ + "/none.txt");
  ASSERT_TRUE(RunToItsEnd(job));
  EXPECT_EQ(Status().refused().class_(), v1::FAILURE_CLASS_USER);
  EXPECT_THAT(Status().refused().message(), HasSubstr("data.train"));
  EXPECT_THAT(Status().refused().message(), HasSubstr("none.txt"));
}

TEST_F(DaemonTest, WithoutDescriptorsOnlyThatAttemptIsRefused) {
  StartWorker();
  ASSERT_TRUE(WaitForHellos(1));
  worker_->LimitDescriptors(3);
  controller_->Want({Job("steps-50", 1)});
  ASSERT_TRUE(controller_->WaitFor(Ended));
  EXPECT_EQ(Status().refused().class_(), v1::FAILURE_CLASS_INFRASTRUCTURE);
  EXPECT_THAT(Status().refused().message(), HasSubstr("Too many open files"));
  worker_->LimitDescriptors(256);
  controller_->Want({Job("steps-50", 1, 2)}, {Key()});
  ASSERT_TRUE(controller_->WaitFor([](const Seen& seen) {
    const v1::AttemptStatus* const second = Find(seen, 2);
    return second != nullptr && second->ended();
  }));
  EXPECT_TRUE(Find(controller_->seen(), 2)->ranks(0).finished());
  EXPECT_EQ(controller_->seen().hellos.size(), 1u) << "the session outlived it";
}

TEST_F(DaemonTest, ARemovedStateFolderEndsNoRank) {
  const std::filesystem::path before = std::filesystem::current_path();
  std::filesystem::create_directory(folder_ + "/start");
  std::filesystem::current_path(folder_ + "/start");
  StartWorker();
  std::filesystem::current_path(before);
  ASSERT_TRUE(WaitForHellos(1));
  std::filesystem::remove(folder_ + "/start");
  controller_->Want({Job("endless", 1)});
  ASSERT_TRUE(WaitForStep(1));
  EXPECT_EQ(std::filesystem::read_symlink(absl::StrCat("/proc/", Pids()[0], "/cwd")), "/");
}

TEST_F(DaemonTest, ACheckpointIsReported) {
  controller_->Want({Job("checkpoint-at-5", 1)});
  StartWorker();
  ASSERT_TRUE(controller_->WaitFor([](const Seen& seen) { return !seen.checkpoints.empty(); }));
  EXPECT_EQ(controller_->seen().checkpoints[0].committed().path(), "step-5");
}

TEST_F(DaemonTest, LogsAreFollowedFromTheTail) {
  ASSERT_TRUE(RunToStep(10, Job("endless", 2)));
  v1::ControllerMessage message;
  v1::UploadRequest& request = *message.mutable_upload();
  request.set_upload("u1");
  *request.mutable_id() = IdOf(Key());
  request.set_rank(1);
  request.set_tail_lines(3);
  request.set_follow(true);
  controller_->Send(message);
  ASSERT_TRUE(controller_->WaitFor(
      [](const Seen& seen) { return std::count(seen.log.begin(), seen.log.end(), '\n') > 20; }));
  EXPECT_THAT(controller_->seen().log, StartsWith("rank 1 step "));
  EXPECT_THAT(controller_->seen().log, testing::Not(StartsWith("rank 1 step 1\n")));
  EXPECT_EQ(controller_->seen().uploads_ended, 0);
  controller_->Want({});
  ASSERT_TRUE(controller_->WaitFor([](const Seen& seen) { return seen.uploads_ended == 1; }));
  const std::string log = controller_->seen().log;
  const std::string whole = ReadAll(folder_ + "/state/logs/0123456789ab/attempt-1/rank-1.log");
  EXPECT_THAT(whole, EndsWith(log)) << "to its last line, without a gap";

  request.set_rank(7);
  controller_->Send(message);
  ASSERT_TRUE(controller_->WaitFor([](const Seen& seen) { return seen.uploads_ended == 2; }));
  EXPECT_THAT(controller_->seen().log_error, HasSubstr("rank-7.log: No such file or directory"));
}

// Else the next files that it opens get their numbers, and its log goes into one of these.
TEST_F(DaemonTest, StandardDescriptorsThatAreClosedLeadToNothing) {
  const std::string closing = folder_ + "/closing";
  std::ofstream(closing) << "#!/bin/sh\nexec " << TANDEM_WORKER << " \"$@\" <&- >&- 2>&-\n";
  std::filesystem::permissions(closing, std::filesystem::perms::owner_all);
  controller_->Want({Job("endless", 1)});
  worker_ = std::make_unique<WorkerProcess>(WorkerProcess::Options{
      .program = closing, .controller = controller_->address(), .state_folder = folder_ + "/state"});
  ASSERT_TRUE(WaitForStep(1));
  for (const char* const descriptor : {"0", "1", "2"}) {
    EXPECT_EQ(std::filesystem::read_symlink(absl::StrCat("/proc/", worker_->pid(), "/fd/", descriptor)),
              "/dev/null")
        << descriptor;
  }
}

TEST_F(DaemonTest, MissingTrainerIsNamed) {
  WorkerProcess worker({.controller = controller_->address(),
                        .state_folder = folder_ + "/state",
                        .trainer = "/nowhere/tandem-trainer",
                        .log = folder_ + "/log"});
  const std::optional<int> status = worker.Wait();
  ASSERT_TRUE(status.has_value());
  EXPECT_EQ(WEXITSTATUS(*status), 1);
  EXPECT_THAT(ReadAll(folder_ + "/log"),
              HasSubstr("--trainer: /nowhere/tandem-trainer is not a program that this user may run"));
}

class FailpointTest : public DaemonTest, public testing::WithParamInterface<const char*> {};

// Wherever the daemon is killed, the next one accounts for every rank, and none is left running.
TEST_P(FailpointTest, TheNextDaemonAccountsForEveryRank) {
  controller_->Want({Job("exit-3-at-step-5", 2)});
  worker_ = std::make_unique<WorkerProcess>(
      WorkerProcess::Options{.program = TANDEM_WORKER_WITH_FAILPOINTS,
                             .controller = controller_->address(),
                             .state_folder = folder_ + "/state",
                             .more = {"--failpoint", std::string(GetParam()) + "=kill"}});
  ASSERT_TRUE(worker_->Wait().has_value());
  const size_t before = controller_->seen().hellos.size();
  StartWorker();
  ASSERT_TRUE(WaitForHellos(before + 1));
  ASSERT_TRUE(controller_->WaitFor(Ended));
  const v1::AttemptStatus status = Status();
  ASSERT_EQ(status.ranks_size(), 2);
  for (const v1::RankStatus& rank : status.ranks()) {
    EXPECT_TRUE(rank.exited());
    EXPECT_FALSE(rank.pid() > 0 && IsAlive(static_cast<pid_t>(rank.pid())));
  }
  const bool recorded = std::string(GetParam()) == "worker.after_record_end";
  EXPECT_EQ(status.ranks(1).cause().reason(), recorded ? "RankExited" : "WorkerLost");
}

INSTANTIATE_TEST_SUITE_P(Points, FailpointTest,
                         testing::Values("worker.after_accept", "worker.after_spawn",
                                         "worker.before_record_end", "worker.after_record_end"),
                         [](const auto& info) { return std::string(info.param).substr(7); });

}  // namespace
}  // namespace tandem::worker
