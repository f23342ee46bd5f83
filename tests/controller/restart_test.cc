// SPDX-License-Identifier: Apache-2.0
// The real daemon, killed between any two messages and started again.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <algorithm>
#include <csignal>
#include <memory>

#include "tests/controller/daemon_process.h"
#include "tests/controller/job_builder.h"
#include "tests/controller/job_client.h"
#include "tests/controller/simulated_worker.h"
#include "tests/controller/worker_session.h"
#include "tests/platform/temporary_folder.h"

namespace tandem::controller {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// Its workers have not gone, and they are not looked for.
using EndTest = DaemonTest;

TEST_F(EndTest, StoppingControllerReportsNoDisconnections) {
  WorkerSession session(client_.channel(), HelloOf("w", 1));
  EXPECT_EQ(daemon_.Stop(), 0);
  EXPECT_THAT(Log(), HasSubstr("worker connected"));
  EXPECT_THAT(Log(), Not(HasSubstr("worker disconnected")));
}

class FailpointTest : public ::testing::TestWithParam<const char*> {};

TEST_P(FailpointTest, AcknowledgedJobsStartExactlyOnce) {
  platform::TemporaryFolder folder;
  auto daemon = std::make_unique<DaemonProcess>(folder.path(), std::string(GetParam()) + "=kill");
  SimulatedWorker a("a", DaemonProcess::Address(folder.path()), {});
  SimulatedWorker b("b", DaemonProcess::Address(folder.path()), {});
  v1::Job job;
  std::thread killed([&] {
    const int status = daemon->Wait();
    EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) << status;
    daemon = std::make_unique<DaemonProcess>(folder.path(), "");
  });
  JobClient client(DaemonProcess::Address(folder.path()));
  const v1::JobSpec spec = JobClient::SpecOf("survivor", 2);
  grpc::Status submitted;
  while (!(submitted = client.Submit(spec, "r1", job)).ok()) {  // the client retries with its request id
    ASSERT_EQ(submitted.error_code(), grpc::StatusCode::UNAVAILABLE) << submitted.error_message();
  }
  const std::string id = job.id();
  killed.join();
  grpc::Status followed;
  while (!(followed = client.Follow(id, job)).ok()) {
    ASSERT_EQ(followed.error_code(), grpc::StatusCode::UNAVAILABLE) << followed.error_message();
  }
  EXPECT_EQ(job.state(), v1::JOB_STATE_SUCCEEDED) << job.reason() << ": " << job.message();
  EXPECT_EQ(job.attempt(), 1);
  EXPECT_EQ(a.starts(), (std::map<std::string, int>{{id, 1}}));
  EXPECT_EQ(b.starts(), (std::map<std::string, int>{{id, 1}}));

  EXPECT_EQ(client.Ask(&v1::Jobs::Stub::ListJobs).jobs_size(), 1);
  auto request = JobClient::Of<v1::ListReportsRequest>(id);
  request.set_page_size(1000);
  EXPECT_EQ(client.Ask(&v1::Jobs::Stub::ListReports, request).reports_size(), 256);
}

INSTANTIATE_TEST_SUITE_P(
    Every, FailpointTest,
    ::testing::Values("controller.before_commit.submit", "controller.after_commit.submit",
                      "controller.before_commit.admitted", "controller.after_commit.admitted",
                      "controller.before_commit.starting", "controller.after_commit.starting",
                      "controller.before_commit.running", "controller.after_commit.running",
                      "controller.before_commit.report", "controller.after_commit.report",
                      "controller.before_commit.checkpoint", "controller.after_commit.checkpoint",
                      "controller.before_commit.checkpoint_warning",
                      "controller.after_commit.checkpoint_warning", "controller.before_commit.stopping",
                      "controller.after_commit.stopping", "controller.before_commit.finished",
                      "controller.after_commit.finished"),
    [](const auto& info) {
      std::string name = info.param;
      std::replace(name.begin(), name.end(), '.', '_');
      return name;
    });

TEST_F(EndTest, SigtermEndsOpenStreamsWithinTwoSeconds) {
  SimulatedWorker a("a", DaemonProcess::Address(folder_.path()), {});
  grpc::ClientContext context;
  JobClient::SetDeadline(context);
  const auto watch = client_.stub().Watch(&context, {});
  v1::WatchResponse response;
  ASSERT_TRUE(watch->Read(&response));
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(daemon_.Stop(), 0);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(10));
  while (watch->Read(&response)) {
  }
  EXPECT_EQ(watch->Finish().error_code(), grpc::StatusCode::UNAVAILABLE);
}

}  // namespace
}  // namespace tandem::controller
