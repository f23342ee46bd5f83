// SPDX-License-Identifier: Apache-2.0
// Waiting for a job: what the exit code says, and how long it takes.
#include <memory>
#include <utility>

#include "absl/synchronization/notification.h"
#include "tests/cli/watched_job_fixture.h"

namespace tandem::cli {
namespace {

class WaitCommandTest : public WatchedJobTest {};

TEST_F(WaitCommandTest, MirrorsTheJobInSilence) {
  for (const auto& [state, code] :
       {std::pair(v1::JOB_STATE_SUCCEEDED, 0), {v1::JOB_STATE_FAILED, 1}, {v1::JOB_STATE_CANCELLED, 130}}) {
    v1::Job job = Ended(state, 2);
    job.set_reason("Because");
    Answer({Snapshot(Running(2)), Changed(job)});
    EXPECT_EQ(Tandem({"wait", "headers"}), code);
    EXPECT_FALSE(server_->watched.back().reports());
    EXPECT_EQ(console_.out, "");
    EXPECT_EQ(console_.err.empty(), code == 0) << console_.err;
  }
  EXPECT_EQ(console_.err, "tandem: headers (3f2a91c07be4) CANCELLED: Because\n");
}

TEST_F(WaitCommandTest, DistinguishesAPreemptedJobFromAFailedOne) {
  v1::Job job = Ended(v1::JOB_STATE_FAILED, 2);
  job.mutable_cause()->set_class_(v1::FAILURE_CLASS_PREEMPTED);
  Answer({Snapshot(job)});
  EXPECT_EQ(Tandem({"wait", "headers"}), kPreempted);
  EXPECT_EQ(kPreempted, 75);
}

TEST_F(WaitCommandTest, TimeoutPrintsTheJobsState) {
  const auto ended = std::make_shared<absl::Notification>();  // the call's, too, which may outlive the test
  server_->watches.push_back([ended](const v1::WatchRequest&, Writer& writer) {
    v1::Job job = SampleJob(v1::JOB_STATE_QUEUED, 1);
    job.set_reason("NotEnoughSlots");
    writer.Write(Snapshot(job));
    ended->WaitForNotification();
    return grpc::Status::OK;
  });
  clock_.step = absl::Milliseconds(10);
  EXPECT_EQ(Tandem({"wait", "headers", "--timeout", "300ms"}), kTimeout);
  ended->Notify();
  EXPECT_EQ(console_.err,
            "tandem: wait headers: after 300ms the job is QUEUED (NotEnoughSlots); it continues: wait "
            "longer, or `tandem cancel` it\n");
}

TEST_F(WaitCommandTest, WithoutTimeLooksOnce) {
  server_->jobs = {Running(2)};
  EXPECT_EQ(Tandem({"wait", "headers", "--timeout", "0s"}), kTimeout);
  EXPECT_EQ(
      console_.err,
      "tandem: wait headers: after 0 the job is RUNNING; it continues: wait longer, or `tandem cancel` it\n");
  server_->jobs = {Ended(v1::JOB_STATE_SUCCEEDED, 2)};
  EXPECT_EQ(Tandem({"wait", "headers", "--timeout", "0s"}), kOk);
  EXPECT_EQ(Tandem({"wait", "nobody", "--timeout", "0s"}), kNotFound);
}

TEST_F(WaitCommandTest, TimesOutWhileTheControllerIsAway) {
  clock_.step = absl::Milliseconds(100);
  Answer({Snapshot(Running(2))}, away_);
  EXPECT_EQ(Tandem({"wait", "headers", "--timeout", "5s"}), kTimeout);
  EXPECT_EQ(console_.err,
            "tandem: wait headers: after 5s the controller at " + server_->address() +
                " is away (Connection reset by peer); the job was RUNNING when it was last heard of: wait "
                "longer\n");
}

}  // namespace
}  // namespace tandem::cli
