// SPDX-License-Identifier: Apache-2.0
// Following a job: what comes out, that nothing is lost or said twice, and what the exit code says.
#include <gmock/gmock.h>
#include <unistd.h>

#include <csignal>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "cli/cluster/state_folder.h"
#include "cli/watch/follow.h"
#include "tests/cli/watched_job_fixture.h"

namespace tandem::cli {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class WatchCommandTest : public WatchedJobTest {
 protected:
  std::vector<int> ReportedSteps() const {
    std::vector<int> steps;
    for (const nlohmann::json& line : JsonLines()) {
      if (line["kind"] == "report") {
        steps.push_back(line["step"]);
      }
    }
    return steps;
  }
};

TEST_F(WatchCommandTest, APipeGetsPlainLinesAndASummary) {
  v1::Job queued = SampleJob(v1::JOB_STATE_QUEUED, 1);
  queued.set_reason("NotEnoughSlots");
  queued.set_message("2 slots are needed, 1 is free");
  queued.mutable_resolved()->mutable_training()->set_steps(4);
  v1::StepReport validated = SampleReport(3);
  (*validated.mutable_scalars())["validation_loss"] = 3.25;
  (*validated.mutable_scalars())["validation_loss/en"] = 3;
  (*validated.mutable_scalars())["validation_loss/de"] = 3.5;
  Answer(
      {Snapshot(queued), Changed(Running(4)), Step(1), Step(2), Reported(validated), Step(4), Succeeded(4)});
  EXPECT_EQ(Tandem({"watch", "headers"}), kOk);
  EXPECT_TRUE(server_->watched[0].reports());
  EXPECT_FALSE(server_->watched[0].norms());
  // Step 2 comes within a second of step 1.
  EXPECT_EQ(console_.out,
            "headers  QUEUED  2 ranks  3f2a91c07be4  NotEnoughSlots: 2 slots are needed, 1 is free\n"
            "headers  RUNNING  2 ranks on cpu  2 workers  3f2a91c07be4\n"
            "step 1/4  loss 5.5000  grad norm 0.842  lr 7.61e-04  8,192 tokens/s  ETA 0:02\n"
            "step 3/4  loss 3.1667  grad norm 0.842  lr 7.61e-04  8,192 tokens/s  ETA 0:01\n"
            "step 3/4  validation loss 3.2500 (de 3.5000, en 3.0000)\n"
            "step 4/4  loss 2.8750  grad norm 0.842  lr 7.61e-04  8,192 tokens/s\n"
            "headers SUCCEEDED after 4 steps in 40 s\n"
            "  loss        2.8750\n"
            "  validation  3.2500 at step 3\n"
            "  of texts    de 3.5000, en 3.0000\n"
            "  speed       8,192 tokens/s on average\n"
            "  checkpoints /data/runs/headers\n");
  EXPECT_EQ(console_.err, "");
}

TEST_F(WatchCommandTest, CheckpointWarningsAreInTheSummary) {
  v1::Job running = Running(2);
  running.mutable_checkpoints()->add_resume()->set_message("step-5 does not verify");
  v1::WatchResponse failed;
  v1::Event& event = *failed.mutable_event();
  event.set_reason("CheckpointFailed");
  event.set_step(2);
  event.set_message("no space");
  event.mutable_checkpoint_warning()->set_problem(v1::CHECKPOINT_PROBLEM_SAVE_FAILED);
  v1::WatchResponse nonfinite;
  nonfinite.mutable_event()->set_reason("NonfiniteGradients");
  nonfinite.mutable_event()->set_step(2);
  nonfinite.mutable_event()->set_message("model.norm.weight (held by rank 1)");
  nonfinite.mutable_event()->mutable_training_warning()->set_step(2);
  v1::Job ended = Ended(v1::JOB_STATE_SUCCEEDED, 2);
  *ended.mutable_checkpoints() = running.checkpoints();
  ended.mutable_checkpoints()->set_failed(1);
  ended.mutable_checkpoints()->set_saved(2);
  ended.mutable_checkpoints()->mutable_last_failure()->set_step(2);
  ended.mutable_checkpoints()->mutable_last_failure()->set_message("no space");
  for (int watch = 0; watch < 2; ++watch) {
    Answer({Snapshot(running), failed, nonfinite, Step(2), Changed(ended)});
  }
  EXPECT_EQ(Tandem({"watch", "headers"}), kOk);
  for (const char* line :
       {"checkpoints: step-5 does not verify\n", "checkpoints: CheckpointFailed at step 2: no space\n",
        "training: NonfiniteGradients at step 2: model.norm.weight (held by rank 1)\n",
        "  saves       1 of 3 failed, the newest was saved; step 2: no space\n",
        "  resumed     step-5 does not verify\n"}) {
    EXPECT_THAT(console_.out, HasSubstr(line));
  }
  EXPECT_EQ(Tandem({"watch", "headers", "-o", "json"}), kOk);
  EXPECT_THAT(
      console_.out,
      HasSubstr(R"({"kind":"warning","reason":"CheckpointFailed","step":2,"path":"","message":"no space"})"
                "\n"));
}

TEST_F(WatchCommandTest, ATerminalIsRedrawnInPlace) {
  console_.terminal = true;
  Answer({Snapshot(Running(2)), Step(1), Step(2), Succeeded(2)});
  EXPECT_EQ(Tandem({"watch", "headers"}), kOk);
  EXPECT_TRUE(server_->watched[0].norms());
  // The first frame, then it is taken away and the summary stands.
  EXPECT_EQ(console_.out.substr(0, 5), "\r\x1b[Kh");
  EXPECT_THAT(console_.out, HasSubstr("A\x1b[Jheaders SUCCEEDED after 2 steps"));
}

TEST_F(WatchCommandTest, WatchResumesAtTheCursorById) {
  Answer({Snapshot(Running(4)), Step(1), Step(2)}, reset_);
  Answer({/*said again=*/Step(2), Step(3), Step(4), Succeeded(4)});
  EXPECT_EQ(Tandem({"watch", "3f2a", "-o", "json"}), kOk);
  ASSERT_EQ(server_->watched.size(), 2u);
  EXPECT_EQ(server_->watched[0].cursor(), "");
  EXPECT_EQ(server_->watched[0].job(), "3f2a");
  EXPECT_EQ(server_->watched[1].cursor(), "step-2");
  EXPECT_EQ(server_->watched[1].job(), "3f2a91c07be4");
  EXPECT_THAT(ReportedSteps(), ElementsAre(1, 2, 3, 4));
  std::vector<bool> connected;
  for (const nlohmann::json& line : JsonLines()) {
    if (line["kind"] == "connection") {
      connected.push_back(line["connected"]);
    }
  }
  EXPECT_THAT(connected, ElementsAre(false, true));
}

TEST_F(WatchCommandTest, AbsenceAndReturnAreReportedOnce) {
  Answer({Snapshot(Running(1))}, reset_);
  Answer({}, grpc::Status(grpc::StatusCode::INTERNAL, "still starting"));
  Answer({Step(1), Succeeded(1)});
  EXPECT_EQ(Tandem({"watch", "headers"}), kOk);
  EXPECT_EQ(console_.err,
            "tandem: the controller is away (Connection reset by peer); training goes on; reconnecting\n"
            "tandem: the controller is back\n");
}

// Step 0 has one, and of the steps whose reports are read none may have one.
TEST_F(WatchCommandTest, WhoJoinsLateIsShownTheLastValidation) {
  constexpr int64_t kSteps = 10'001;
  for (const int64_t validated : {0, 7000}) {
    server_->reports = {SampleReport(validated), SampleReport(kSteps - 1)};
    (*server_->reports[0].mutable_scalars())["validation_loss"] = 3.25;
    v1::Job running = Running(kSteps);
    running.set_last_step(kSteps - 1);
    running.mutable_resolved()->mutable_training()->set_validate_every_steps(validated == 0 ? 20'000
                                                                                            : validated);
    Answer({Snapshot(running), Step(kSteps), Succeeded(kSteps)});
    EXPECT_EQ(Tandem({"watch", "headers"}), kOk);
    EXPECT_THAT(console_.out,
                AllOf(HasSubstr(absl::StrCat("step ", validated, "/10001  validation loss 3.2500\n")),
                      HasSubstr(absl::StrCat("  validation  3.2500 at step ", validated, "\n")),
                      HasSubstr("headers SUCCEEDED after 10001 steps")));
  }
}

TEST_F(WatchCommandTest, OldCursorStartsFromTheSnapshot) {
  Answer({Snapshot(Running(2)), Step(1)}, grpc::Status(grpc::StatusCode::OUT_OF_RANGE, "another store"));
  Answer({Snapshot(Running(2)), Step(1), Step(2), Succeeded(2)});
  EXPECT_EQ(Tandem({"watch", "headers"}), kOk);
  ASSERT_EQ(server_->watched.size(), 2u);
  EXPECT_EQ(server_->watched[1].cursor(), "");
  EXPECT_THAT(console_.out, HasSubstr("step 1/2"));
  EXPECT_EQ(console_.out.find("step 1/2"), console_.out.rfind("step 1/2"));
  EXPECT_EQ(console_.err, "");
}

TEST_F(WatchCommandTest, MissingStepsComeFromTheHistory) {
  for (int step = 1; step <= 6; ++step) {
    server_->reports.push_back(SampleReport(step));
  }
  v1::Job job = Running(6);
  job.set_last_step(2);                            // of before the watch
  Answer({Snapshot(job), Step(5), Succeeded(6)});  // before the last report
  EXPECT_EQ(Tandem({"watch", "headers", "-o", "json"}), kOk);
  EXPECT_THAT(ReportedSteps(), ElementsAre(1, 2, 3, 4, 5, 6));
}

TEST_F(WatchCommandTest, FailedJobShowsCauseAndLog) {
  v1::LogChunk chunk;
  chunk.set_rank(1);
  for (int i = 0; i < 30; ++i) {
    chunk.mutable_data()->append("line " + std::to_string(i) + "\n");
  }
  server_->log.push_back(chunk);
  v1::Job job = Ended(v1::JOB_STATE_FAILED, 200);
  job.mutable_cause()->set_reason("RankKilled");
  job.mutable_cause()->set_rank(1);
  job.mutable_cause()->set_worker("local-2");
  job.mutable_cause()->set_signal(9);
  job.mutable_cause()->set_step(7);
  Answer({Snapshot(job)});
  EXPECT_EQ(Tandem({"watch", "headers"}), kFailed);
  EXPECT_THAT(console_.out,
              AllOf(HasSubstr("  RankKilled: Rank 1 on worker local-2 was killed by signal 9 "
                              "(SIGKILL) at step 7.\n"),
                    HasSubstr("  last lines of rank 1:\n    line 10\n"), HasSubstr("    line 29\n")));
  EXPECT_EQ(server_->log_requests.back().rank(), 1);
  EXPECT_EQ(server_->log_requests.back().tail_lines(), 20);
}

TEST_F(WatchCommandTest, AClosedPipeEndsTheWatch) {
  console_.out_closed = true;
  Answer({Snapshot(Running(2))});
  EXPECT_EQ(Tandem({"watch", "headers"}), kOutputClosed);
}

TEST_F(WatchCommandTest, UnknownJobsStateIsNotShown) {
  const auto ended = std::make_shared<absl::Notification>();  // the call's, too, which may outlive the test
  const auto silent = [ended](const v1::WatchRequest&, Writer&) {
    ended->WaitForNotification();
    return grpc::Status::OK;
  };
  clock_.step = absl::Milliseconds(10);
  server_->watches.push_back(silent);
  EXPECT_EQ(Tandem({"wait", "headers", "--timeout", "300ms"}), kTimeout);
  EXPECT_EQ(console_.err, "tandem: wait headers: the controller at " + server_->address() +
                              " did not answer in time; it may be overloaded or stopped: look at its log\n");
  for (const auto& [command, did] : {std::pair("wait", "waiting"), std::pair("watch", "watching")}) {
    server_->watches.push_back([silent](const v1::WatchRequest& request, Writer& writer) {
      ::kill(::getpid(), SIGINT);
      return silent(request, writer);
    });
    EXPECT_EQ(Tandem({command, "headers"}), kCancelled);
    EXPECT_EQ(console_.err, absl::StrCat("tandem: stopped ", did, "; the controller at ", server_->address(),
                                         " has said nothing of the job yet\n"));
  }
  ended->Notify();
}

TEST_F(WatchCommandTest, AbsentControllerIsGivenUpInTenMinutes) {
  for (const char* command : {"watch", "wait"}) {
    clock_.step = absl::Seconds(1);
    server_->watches.push_back([&](const v1::WatchRequest&, Writer& writer) {
      writer.Write(Snapshot(Running(2)));
      clock_.step = absl::Seconds(61);
      return away_;
    });
    EXPECT_EQ(Tandem({command, "headers"}), kUnreachable);
    EXPECT_THAT(console_.err,
                HasSubstr(absl::StrCat(command, " headers: the controller at ", server_->address(),
                                       " has been away for 10m (Connection reset by peer); ranks that")));
  }
}

TEST_F(WatchCommandTest, TheEndOfTheClusterEndsTheWatch) {
  environment_.tandem_addr.clear();
  environment_.xdg_state_home = folder_ + "/state";
  absl::StatusOr<FolderLock> lock = FolderLock::Acquire(UpFolder(folder_ + "/state/tandem"));
  ASSERT_TRUE(lock.ok());
  ASSERT_TRUE(lock->Publish(server_->address()).ok());
  std::optional<FolderLock> up(*std::move(lock));
  Answer({Snapshot(SampleJob(v1::JOB_STATE_QUEUED, 1))}, away_);
  server_->watches.push_back([&](const v1::WatchRequest&, Writer&) {  // `up` is still there: it goes on
    up.reset();
    return grpc::Status(grpc::StatusCode::UNAVAILABLE, "stream: Connection refused");
  });
  EXPECT_EQ(Tandem({"watch", "headers"}), kUnreachable);
  EXPECT_THAT(console_.err,
              HasSubstr("watch headers: the `tandem up` at " + server_->address() + " has ended"));
  EXPECT_EQ(server_->watched.size(), 2u);
}

TEST_F(WatchCommandTest, EventsAndStepsComeInOrder) {
  const auto checkpoint = [](int64_t step) {
    v1::WatchResponse response;
    v1::Event& event = *response.mutable_event();
    event.set_attempt(1);
    event.set_step(step);
    event.set_from(v1::JOB_STATE_RUNNING);
    event.set_to(v1::JOB_STATE_RUNNING);
    event.mutable_checkpoint()->set_step(step);
    event.mutable_checkpoint()->set_path(absl::StrCat("/c/step-", step));
    return response;
  };
  v1::Job starting = SampleJob(v1::JOB_STATE_STARTING, 2);
  starting.mutable_resolved()->mutable_training()->set_steps(4);
  v1::Job stopping = SampleJob(v1::JOB_STATE_STOPPING, 7);
  stopping.mutable_resolved()->mutable_training()->set_steps(4);
  stopping.set_reason("Finishing");
  stopping.set_last_step(4);
  v1::Job ended = Ended(v1::JOB_STATE_SUCCEEDED, 4);
  ended.set_last_step(4);
  Answer({Snapshot(starting), Step(1), Changed(Running(4)), checkpoint(2), Changed(Running(4)), checkpoint(4),
          Changed(stopping), Step(2), Step(3), Step(4), Changed(ended)});
  EXPECT_EQ(Tandem({"watch", "headers", "-o", "json"}), kOk);
  std::vector<std::string> order;
  for (const nlohmann::json& object : JsonLines()) {
    order.push_back(object.contains("step")
                        ? absl::StrCat(object["kind"].get<std::string>(), " ", object["step"].get<int>())
                    : object["kind"] == "job" ? object["state"].get<std::string>()
                                              : object["kind"].get<std::string>());
  }
  EXPECT_THAT(order, ElementsAre("STARTING", "RUNNING", "report 1", "report 2", "checkpoint 2", "report 3",
                                 "report 4", "checkpoint 4", "STOPPING", "SUCCEEDED", "end"));
}

TEST_F(WatchCommandTest, WatchingAnUnknownJobIsExitThree) {
  Answer({}, grpc::Status(grpc::StatusCode::NOT_FOUND, "there is no job \"x\""));
  EXPECT_EQ(Tandem({"watch", "x"}), kNotFound);
  EXPECT_EQ(console_.out, "");
}

TEST_F(WatchCommandTest, SubmitFollowShowsTheJobItSubmitted) {
  server_->jobs = {SampleJob(v1::JOB_STATE_QUEUED, 1)};
  Answer({Snapshot(Ended(v1::JOB_STATE_CANCELLED, 2))});
  EXPECT_EQ(Tandem({"submit", "-f", GoodJobFile(), "--follow"}), kCancelled);
  EXPECT_EQ(server_->watched[0].job(), "3f2a91c07be4");
  EXPECT_EQ(console_.out.substr(0, 13), "3f2a91c07be4\n");
}

}  // namespace
}  // namespace tandem::cli
