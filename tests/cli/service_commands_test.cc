// SPDX-License-Identifier: Apache-2.0
// Commands about the service as a whole, and those that ask its ranks for something.
#include <gmock/gmock.h>

#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/time/clock.h"
#include "cli/cluster/state_folder.h"
#include "cli/terminal/display_text.h"
#include "tests/cli/command_fixture.h"

namespace tandem::cli {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

v1::Event EventOf(int64_t seq, v1::JobState from, v1::JobState to, const std::string& reason) {
  v1::Event event;
  event.set_seq(seq);
  event.set_job_id("3f2a91c07be4");
  *event.mutable_time() = At(seq);
  event.set_from(from);
  event.set_to(to);
  event.set_reason(reason);
  return event;
}

class ServiceCommandTest : public CommandTest {
 protected:
  ServiceCommandTest() {
    server_->jobs = {SampleJob(v1::JOB_STATE_RUNNING, 4)};
    server_->events = {EventOf(1, v1::JOB_STATE_UNSPECIFIED, v1::JOB_STATE_QUEUED, "Submitted"),
                       EventOf(3, v1::JOB_STATE_QUEUED, v1::JOB_STATE_RUNNING, "Ready")};
  }

  // The job stands still, since its rank 1 does.
  void Stall() {
    v1::Progress& progress = *server_->jobs[0].mutable_progress();
    progress.set_rank(1);
    progress.set_worker("b");
    progress.mutable_age()->set_seconds(40);
    progress.set_stalled(true);
  }
};

TEST_F(ServiceCommandTest, FollowedEventsComeOnceInOrder) {
  server_->later_events = {EventOf(7, v1::JOB_STATE_RUNNING, v1::JOB_STATE_RUNNING, "CheckpointRequested"),
                           EventOf(9, v1::JOB_STATE_RUNNING, v1::JOB_STATE_SUCCEEDED, "Finished")};
  EXPECT_EQ(Tandem({"events", "headers", "-f"}), kOk);
  EXPECT_EQ(console_.out,
            "2024-05-01 12:00:01  QUEUED      Submitted\n"
            "2024-05-01 12:00:03  RUNNING     Ready\n"
            "2024-05-01 12:00:07              CheckpointRequested\n"
            "2024-05-01 12:00:09  SUCCEEDED   Finished\n");
  EXPECT_GE(server_->event_looks, 3);
}

// A controller that ends by SIGTERM cancels the calls that it has.
TEST_F(ServiceCommandTest, FollowedEventsSurviveARestart) {
  server_->event_failures = {grpc::Status::CANCELLED};
  server_->later_events = {EventOf(9, v1::JOB_STATE_RUNNING, v1::JOB_STATE_SUCCEEDED, "Finished")};
  EXPECT_EQ(Tandem({"events", "headers", "-f"}), kOk) << console_.err;
  EXPECT_THAT(console_.out, EndsWith("SUCCEEDED   Finished\n"));
  EXPECT_EQ(console_.err, "tandem: no controller answers at " + server_->address() +
                              "; events go on when one does\ntandem: the controller is back\n");
  server_->sign_in_status = grpc::Status::CANCELLED;
  EXPECT_EQ(Tandem({"sign-in"}), kUnreachable);
  EXPECT_THAT(console_.err, HasSubstr("(the controller is shutting down); "));
}

TEST_F(ServiceCommandTest, FollowedEventsAreJsonForPrograms) {
  server_->events.push_back(EventOf(4, v1::JOB_STATE_RUNNING, v1::JOB_STATE_FAILED, "RankKilled"));
  EXPECT_EQ(Tandem({"events", "headers", "-f", "-o", "json"}), kOk);
  EXPECT_EQ(std::count(console_.out.begin(), console_.out.end(), '\n'), 3);
  EXPECT_THAT(console_.out, HasSubstr(R"("seq":4)"));
  EXPECT_EQ(Tandem({"events", "headers", "-f", "-o", "yaml"}), kOk);
  EXPECT_THAT(console_.out,
              HasSubstr("- seq: 4\n  time: \"2024-05-01T12:00:04Z\"\n  job_id: \"3f2a91c07be4\"\n"));
}

TEST_F(ServiceCommandTest, SignInPrintsAnAddressAlone) {
  EXPECT_EQ(Tandem({"sign-in"}), kOk);
  EXPECT_EQ(console_.out, "http://127.0.0.1:9464/#/sign-in/" + std::string(32, 'a') + "\n");
  EXPECT_THAT(console_.err, HasSubstr("open this within 1m, once; the browser is then user/alice"));
  server_->sign_in_status = {grpc::StatusCode::FAILED_PRECONDITION,
                             "this controller has no page to sign in to"};
  EXPECT_EQ(Tandem({"sign-in"}), kFailed);
  EXPECT_THAT(console_.err, HasSubstr("has no page to sign in to"));
}

TEST_F(ServiceCommandTest, FollowingEndsWhenNobodyReadsAnyMore) {
  console_.out_closed = true;
  EXPECT_EQ(Tandem({"events", "headers", "-f"}), kOutputClosed);
}

TEST_F(ServiceCommandTest, ClusterEndEndsWaitingCommands) {
  environment_.tandem_addr.clear();
  environment_.xdg_state_home = folder_ + "/state";
  const std::string address = server_->address();
  const auto expect_end = [&](const std::vector<std::string>& words, const std::string& what,
                              const std::function<bool()>& waits, const std::function<void()>& stop) {
    absl::StatusOr<FolderLock> lock = FolderLock::Acquire(UpFolder(folder_ + "/state/tandem"));
    ASSERT_TRUE(lock.ok());
    ASSERT_TRUE(lock->Publish(address).ok());
    std::optional<FolderLock> up(*std::move(lock));
    const std::jthread ending([&] {
      while (!waits()) {
        absl::SleepFor(absl::Milliseconds(1));
      }
      stop();
      up.reset();
    });
    EXPECT_EQ(Tandem(words), kUnreachable);
    EXPECT_THAT(console_.err,
                HasSubstr("tandem: " + what + ": the `tandem up` at " + address + " has ended"));
  };
  constexpr int kMany = 1'000'000;
  server_->get_failures = kMany;
  expect_end(
      {"checkpoint", "now", "headers"}, "checkpoint now headers",
      [&] { return server_->get_failures < kMany; }, [] {});
  expect_end(
      {"events", "headers", "-f"}, "events headers", [&] { return server_->event_looks > 1; },
      [&] { server_->Stop(); });
  server_->Start();
  console_.terminal = true;  // where it looks again and again
  expect_end(
      {"top"}, "top", [&] { return server_->worker_looks > 1; }, [&] { server_->Stop(); });
}

TEST_F(ServiceCommandTest, EventsWithoutAJobSayWhoseTheyAre) {
  EXPECT_EQ(Tandem({"events"}), kOk);
  EXPECT_THAT(console_.out, StartsWith("TIME                 JOB           STATE"));
  EXPECT_THAT(console_.out, HasSubstr("3f2a91c07be4"));
}

TEST_F(ServiceCommandTest, AnEventFitsANarrowTerminal) {
  console_.terminal = true;
  console_.size = {40, 24};
  server_->events = {EventOf(4, v1::JOB_STATE_RUNNING, v1::JOB_STATE_FAILED, std::string(100, 'x'))};
  EXPECT_EQ(Tandem({"events", "headers", "-f"}), kOk);
  EXPECT_LE(DisplayWidth(console_.out.substr(0, console_.out.find('\n'))), 40);
}

TEST_F(ServiceCommandTest, YamlIsOfTheSameFieldsAsJson) {
  EXPECT_EQ(Tandem({"get", "jobs", "-o", "yaml"}), kOk);
  EXPECT_THAT(console_.out, StartsWith("- id: \"3f2a91c07be4\"\n  name: headers\n"));
  EXPECT_EQ(Tandem({"describe", "headers", "-o", "yaml"}), kOk);
  EXPECT_THAT(console_.out, StartsWith("id: \"3f2a91c07be4\"\nname: headers\n"));
  EXPECT_THAT(console_.out, HasSubstr("resolved:\n  name: headers\n"));
  server_->jobs.clear();
  EXPECT_EQ(Tandem({"get", "jobs", "-o", "yaml"}), kOk);
  EXPECT_EQ(console_.out, "[]\n");
}

TEST_F(ServiceCommandTest, CheckpointNowPrintsTheSavedFolder) {
  server_->jobs[0].mutable_checkpoints()->set_answered(77);
  server_->jobs[0].mutable_checkpoints()->set_last_step(120);
  EXPECT_EQ(Tandem({"checkpoint", "now", "headers"}), kOk);
  EXPECT_EQ(console_.out, "/data/runs/headers/step-120\n");
}

TEST_F(ServiceCommandTest, CheckpointNowTimesOutWithTheReason) {
  Stall();
  EXPECT_EQ(Tandem({"checkpoint", "now", "headers", "--timeout", "0s"}), kTimeout);
  EXPECT_THAT(console_.err, StartsWith("tandem: checkpoint now headers: job headers has not saved it yet: "));
  EXPECT_THAT(console_.err, HasSubstr("rank 1"));
  EXPECT_THAT(console_.err,
              HasSubstr("; the request stays: `tandem events headers` shows when it is done\n"));
}

// The request is durable: it outlives the controller that took it. Failing calls are tried again a few times.
TEST_F(ServiceCommandTest, CheckpointNowOutlivesTheControllersAbsence) {
  server_->checkpoint_answered_later = 77;
  server_->jobs[0].mutable_checkpoints()->set_last_step(120);
  server_->get_failures = 12;
  EXPECT_EQ(Tandem({"checkpoint", "now", "headers"}), kOk);
  EXPECT_EQ(console_.out, "/data/runs/headers/step-120\n");
  EXPECT_LT(server_->get_failures, 0);
}

TEST_F(ServiceCommandTest, CheckpointNowSaysWhyNothingWasSaved) {
  server_->jobs[0].mutable_checkpoints()->set_answered(77);
  server_->jobs[0].mutable_checkpoints()->set_answer_error("No space left on device");
  EXPECT_EQ(Tandem({"checkpoint", "now", "headers"}), kFailed);
  EXPECT_EQ(console_.err,
            "tandem: checkpoint now headers: not saved, and training goes on: No space left on device\n");
  server_->jobs[0].mutable_checkpoints()->clear_answered();
  server_->jobs[0].set_state(v1::JOB_STATE_FAILED);
  server_->jobs[0].set_reason("RankKilled");
  EXPECT_EQ(Tandem({"checkpoint", "now", "headers"}), kFailed);
  EXPECT_EQ(console_.err,
            "tandem: checkpoint now headers: the job ended before it was saved: FAILED: RankKilled\n");
  EXPECT_EQ(Tandem({"checkpoint", "now", "headers", "--no-wait"}), kOk);
  EXPECT_EQ(console_.out, "");
  server_->checkpoint_status = {grpc::StatusCode::FAILED_PRECONDITION, "there is nowhere to save"};
  EXPECT_EQ(Tandem({"checkpoint", "now", "headers"}), kFailed);
  EXPECT_THAT(console_.err, HasSubstr("there is nowhere to save"));
  EXPECT_EQ(Tandem({"checkpoint", "now", "nobody"}), kNotFound);
  EXPECT_EQ(Tandem({"checkpoint"}), kUsage);
  EXPECT_EQ(
      console_.err,
      "tandem: checkpoint: its second word is missing or unknown; allowed: checkpoint now, checkpoint list, "
      "checkpoint show, checkpoint verify, checkpoint diff, checkpoint delete; see `tandem checkpoint "
      "--help`\n");
}

TEST_F(ServiceCommandTest, CancelWithACheckpointAsksForOneFirst) {
  EXPECT_EQ(Tandem({"cancel", "headers", "--checkpoint"}), kOk);
  EXPECT_EQ(Tandem({"cancel", "headers"}), kOk);
  ASSERT_EQ(server_->cancelled.size(), 2u);
  EXPECT_TRUE(server_->cancelled[0].checkpoint());
  EXPECT_FALSE(server_->cancelled[1].checkpoint());
}

TEST_F(ServiceCommandTest, CancelWithCheckpointTimesOutWithTheReason) {
  Stall();
  EXPECT_EQ(Tandem({"cancel", "headers", "--checkpoint", "--timeout", "0s"}), kTimeout);
  EXPECT_THAT(console_.err, StartsWith("tandem: cancel headers: job headers has not saved it yet: "));
  EXPECT_THAT(console_.err, HasSubstr("rank 1"));
  EXPECT_THAT(console_.err,
              HasSubstr("; the request stays: `tandem cancel headers` ends it without a checkpoint\n"));
  EXPECT_EQ(Tandem({"cancel", "headers", "--checkpoint"}), kOk);
  EXPECT_THAT(console_.err, HasSubstr("`tandem cancel headers` ends it without a checkpoint"))
      << "it may take forever";
  EXPECT_EQ(Tandem({"cancel", "headers", "--timeout", "1s"}), kUsage);
}

TEST_F(ServiceCommandTest, CancelWithATimeWaitsForTheEnd) {
  v1::Job& job = server_->jobs[0];
  const auto cancel = [this] { return Tandem({"cancel", "headers", "--checkpoint", "--timeout", "10m"}); };
  job.set_last_step(7);
  job.mutable_checkpoints()->set_last_step(7);
  job.set_state(v1::JOB_STATE_CANCELLED);
  EXPECT_EQ(cancel(), kOk);
  job.set_state(v1::JOB_STATE_FAILED);
  EXPECT_EQ(cancel(), kFailed);
  EXPECT_THAT(console_.err, HasSubstr("the job failed: "));
}

TEST_F(ServiceCommandTest, CancelWithTimeFailsIfNothingWasSaved) {
  v1::Job& job = server_->jobs[0];
  job.set_last_step(8);
  job.mutable_checkpoints()->set_last_step(7);
  for (const v1::JobState state : {v1::JOB_STATE_CANCELLED, v1::JOB_STATE_FAILED}) {
    job.set_state(state);
    EXPECT_EQ(Tandem({"cancel", "headers", "--checkpoint", "--timeout", "10m"}), kFailed);
    EXPECT_THAT(console_.err, HasSubstr("the job ended before it was saved: "));
  }
}

TEST_F(ServiceCommandTest, HealthIsTheExitCode) {
  server_->workers.resize(9);
  EXPECT_EQ(Tandem({"health"}), kOk);
  EXPECT_EQ(server_->worker_looks, 1) << "it does not read the list of a large cluster";
  EXPECT_EQ(console_.out, "SERVING  other at " + server_->address() + "\n");
  server_->Stop();
  EXPECT_EQ(Tandem({"health", "--timeout", "30s"}), kUnreachable);
  EXPECT_EQ(console_.out, "");
  EXPECT_EQ(Tandem({"health", "--timeout", "soon"}), kUsage);
}

TEST_F(ServiceCommandTest, TopIntoAPipeIsPrintedOnce) {
  v1::Worker& worker = server_->workers.emplace_back();
  worker.set_id("local-1");
  worker.set_connected(true);
  worker.set_slots(4);
  worker.set_slots_in_use(2);
  server_->jobs[0].set_last_step(8);
  server_->reports = {SampleReport(7), SampleReport(8)};
  EXPECT_EQ(Tandem({"top"}), kOk);
  EXPECT_THAT(console_.out,
              StartsWith("workers 1 of 1 connected  slots 2 of 4 in use  jobs 1 RUNNING  8,192 tokens/s\n"));
  EXPECT_THAT(console_.out, HasSubstr("headers  RUNNING  8/200  2.4375     8,192    0.500 s  1:36"));
  EXPECT_THAT(console_.out, Not(HasSubstr("\x1b")));
}

TEST_F(ServiceCommandTest, DoctorFailsIfAnyFindingDoes) {
  EXPECT_EQ(Tandem({"doctor"}), kOk)
      << console_.out;  // nothing is installed beside this test, which is a warning
  EXPECT_THAT(console_.out, HasSubstr("WARN  tandem-worker        there is none in " + folder_ + "/bin"));
  EXPECT_THAT(console_.out, HasSubstr("WARN  controller           other at " + server_->address()));
  EXPECT_THAT(console_.out, HasSubstr("state                " + folder_ + ": "));
  EXPECT_EQ(Tandem({"doctor", "--shared", folder_ + "/absent", "-o", "json"}), kFailed);
  EXPECT_THAT(console_.out, HasSubstr(R"({"level":"FAIL","subject":"shared folder","text":")" + folder_ +
                                      "/absent: No such file or directory"));
  server_->Stop();
  EXPECT_EQ(Tandem({"doctor"}), kFailed) << "a controller that was named must answer";
  EXPECT_THAT(console_.out, HasSubstr("FAIL  controller           no controller answers at "));
}

TEST_F(ServiceCommandTest, ControllerWithoutStorageIsUnhealthy) {
  server_->store_error = "/state/controller.db: No space left on device";
  EXPECT_EQ(Tandem({"health"}), kFailed);
  EXPECT_EQ(console_.out, "DEGRADED  other at " + server_->address() + "\n");
  EXPECT_EQ(console_.err,
            "tandem: health: the controller accepts no jobs and changes the state of none: "
            "/state/controller.db: No space left on device; make room on that file system\n");
}

TEST_F(ServiceCommandTest, DoctorWritesEveryDurationInOneForm) {
  clock_.step = absl::Microseconds(2500);
  server_->now = clock_.Now() + absl::Milliseconds(5);
  EXPECT_EQ(Tandem({"doctor"}), kOk);
  EXPECT_THAT(console_.out, HasSubstr(" answers in 2.50 ms; "));
  EXPECT_THAT(console_.out, HasSubstr("the controller's is 1.25 ms ahead\n"));
  server_->now += absl::Hours(3);
  EXPECT_EQ(Tandem({"doctor"}), kOk);
  EXPECT_THAT(console_.out, HasSubstr("the controller's is 3 h 0 min ahead; timestamps"));
}

TEST_F(ServiceCommandTest, DoctorOnANarrowTerminalWraps) {
  console_.terminal = true;
  console_.size = {50, 24};
  Tandem({"doctor"});
  for (size_t begin = 0; begin < console_.out.size();) {
    const size_t end = console_.out.find('\n', begin);
    EXPECT_LE(DisplayWidth(console_.out.substr(begin, end - begin)), 50);
    begin = end + 1;
  }
}

}  // namespace
}  // namespace tandem::cli
