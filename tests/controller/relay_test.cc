// SPDX-License-Identifier: Apache-2.0
// What the controller asks of workers for users that wait: logs and timelines.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "controller/http/json_api.h"
#include "tests/controller/job_builder.h"
#include "tests/controller/service_fixture.h"
#include "tests/controller/simulated_worker.h"
#include "tests/controller/worker_session.h"

namespace tandem::controller {
namespace {

using ::testing::HasSubstr;

TEST_F(ServiceTest, LogsAreRelayedFromTheWorkers) {
  auto a = std::make_unique<SimulatedWorker>("a", address(),
                                             SimulatedWorker::Script{.log_line = "hello from a\n"});
  client_->Ended("logs", 1);
  auto request = JobClient::Of<v1::LogRequest>("logs");
  const auto read = [&](v1::LogChunk& chunk) {
    grpc::ClientContext context;
    JobClient::SetDeadline(context);
    const auto stream = client_->stub().ReadLog(&context, request);
    const bool one = stream->Read(&chunk);
    v1::LogChunk more;
    EXPECT_FALSE(stream->Read(&more));
    EXPECT_TRUE(stream->Finish().ok());
    return one;
  };
  v1::LogChunk chunk;
  ASSERT_TRUE(read(chunk));
  EXPECT_EQ(chunk.data(), "hello from a\n");
  a.reset();
  // A request that comes before the controller notices is told that the worker went away.
  JobClient::Until(
      [&] { return read(chunk) && absl::StrContains(chunk.error(), "worker a is not connected"); });
}

// Or whoever follows a log takes the death of its worker for the end of the job.
TEST_F(ServiceTest, FollowedLogEndsWithItsWorker) {
  WorkerSession session(client_->channel(), HelloOf("w", 1));
  client_->Submitted("logs", 1);
  FirstAttempt(*session);
  for (const bool dies : {true, false}) {
    grpc::ClientContext reader_context;
    JobClient::SetDeadline(reader_context);
    auto request = JobClient::Of<v1::LogRequest>("logs");
    request.set_follow(true);
    const auto reader = client_->stub().ReadLog(&reader_context, request);
    v1::ControllerMessage message;
    do {
      ASSERT_TRUE(session->Read(&message));
    } while (!message.has_upload());
    grpc::ClientContext upload_context;
    JobClient::SetDeadline(upload_context);
    v1::UploadDone done;
    const auto upload = session.stub().Upload(&upload_context, &done);
    v1::UploadChunk sent;
    sent.set_upload(message.upload().upload());
    sent.mutable_chunk()->set_data("a line\n");
    ASSERT_TRUE(upload->Write(sent));
    v1::LogChunk chunk;
    ASSERT_TRUE(reader->Read(&chunk));
    EXPECT_EQ(chunk.data(), "a line\n");
    if (dies) {
      upload_context.TryCancel();
    } else {
      upload->WritesDone();
      EXPECT_TRUE(upload->Finish().ok());
    }
    EXPECT_EQ(reader->Read(&chunk), dies);
    if (dies) {
      EXPECT_EQ(chunk.error(), "worker w went away; the log lies there");
      EXPECT_FALSE(reader->Read(&chunk));
    }
    EXPECT_TRUE(reader->Finish().ok());
  }
  session.Cancel();
}

class ProfileTest : public ServiceTest {
 protected:
  // What comes of so many steps of a job, and the status at the end.
  grpc::Status Profile(const std::string& job, int steps, std::vector<v1::ProfileChunk>& chunks) {
    grpc::ClientContext context;
    JobClient::SetDeadline(context);
    auto request = JobClient::Of<v1::ProfileRequest>(job);
    request.set_steps(steps);
    const auto stream = client_->stub().Profile(&context, request);
    v1::ProfileChunk chunk;
    chunks.clear();
    while (stream->Read(&chunk)) {
      chunks.push_back(chunk);
    }
    return stream->Finish();
  }

  void StartJob() {
    client_->Submitted("held", 2);
    client_->AwaitRunning("held");
  }
};

TEST_F(ProfileTest, TimelinesAreRelayedWithTheirRanks) {
  const SimulatedWorker a("a", address(), {.hold = true, .timelines = 2});
  const SimulatedWorker b("b", address(), {.hold = true, .timelines = 2});
  StartJob();
  std::vector<v1::ProfileChunk> chunks;
  ASSERT_TRUE(Profile("held", 2, chunks).ok());
  std::set<std::pair<int, int64_t>> seen;
  for (const v1::ProfileChunk& chunk : chunks) {
    EXPECT_EQ(chunk.error(), "");
    seen.emplace(chunk.rank(), chunk.timeline().step());
  }
  EXPECT_EQ(seen, (std::set<std::pair<int, int64_t>>{{0, 1}, {0, 2}, {1, 1}, {1, 2}}));
}

// The page's trace is held as a whole: 256 ranks would make gigabytes of 16 steps.
TEST_F(ProfileTest, AnOversizedTraceIsRefusedBeforeRecording) {
  const SimulatedWorker a("a", address(), {.slots = 256, .hold = true, .timelines = 16});
  v1::JobSpec spec = JobClient::SpecOf("wide", 256);
  spec.mutable_training()->set_global_batch_size(256);
  v1::Job job;
  ASSERT_TRUE(client_->Submit(spec, "", job).ok());
  JobClient::Until([&] { return client_->Get("wide", job).ok() && job.state() == v1::JOB_STATE_RUNNING; });
  JsonApi api(client_->channel(), [](const auto&...) {});
  const HttpAnswer answer = api.Answer(
      "Profile", {.path = "/api/Profile", .query = {{"job", "wide"}, {"steps", "16"}}, .is_post = true},
      "session");
  EXPECT_EQ(answer.status, 409);
  EXPECT_THAT(answer.body, HasSubstr("more than 100000 instructions"));
  EXPECT_THAT(answer.body, HasSubstr("tandem profile wide --trace FILE"));
}

TEST_F(ProfileTest, AWorkerThatSendsTooLittleIsNamed) {
  const SimulatedWorker a("a", address(), {.slots = 2, .hold = true, .timelines = 1});
  StartJob();
  std::vector<v1::ProfileChunk> chunks;
  ASSERT_TRUE(Profile("held", 2, chunks).ok());
  int errors = 0;
  for (const v1::ProfileChunk& chunk : chunks) {
    if (!chunk.error().empty()) {
      EXPECT_EQ(chunk.error(), "worker a stopped sending before every step had come");
      ++errors;
    }
  }
  EXPECT_EQ(errors, 2);
}

TEST_F(ProfileTest, WhatDoesNotRunIsRefused) {
  std::vector<v1::ProfileChunk> chunks;
  EXPECT_EQ(Profile("nobody", 2, chunks).error_code(), grpc::StatusCode::NOT_FOUND);
  client_->Submitted("waits", 1);
  const grpc::Status waits = Profile("waits", 2, chunks);
  EXPECT_EQ(waits.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_THAT(waits.error_message(), HasSubstr("is not running: QUEUED; try again when it runs"));
  for (const int steps : {0, 17}) {
    EXPECT_EQ(Profile("waits", steps, chunks).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  }
}

}  // namespace
}  // namespace tandem::controller
