// SPDX-License-Identifier: Apache-2.0
// The real daemon without file descriptors, without disk, and with files that are not its own.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <chrono>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
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

void SetLimit(const DaemonProcess& daemon, __rlimit_resource resource, rlim_t value) {
  rlimit limit{};
  ASSERT_EQ(prlimit(daemon.pid(), resource, nullptr, &limit), 0);
  limit.rlim_cur = value;
  ASSERT_EQ(prlimit(daemon.pid(), resource, &limit, nullptr), 0);
}

// Seconds of processor time that it has used.
double CpuSeconds(const DaemonProcess& daemon) {
  double nanoseconds = 0;
  double sum = 0;
  for (const auto& task :
       std::filesystem::directory_iterator("/proc/" + std::to_string(daemon.pid()) + "/task")) {
    std::ifstream(task.path() / "schedstat") >> nanoseconds;
    sum += nanoseconds;
  }
  return sum / 1e9;
}

// Whether it uses little of a second in which nothing happens. One of three is enough: where a virtual
// machine stands still, the time is counted as that of whatever ran.
bool IsIdle(const DaemonProcess& daemon) {
  for (int i = 0; i < 3; ++i) {
    const double before = CpuSeconds(daemon);
    std::this_thread::sleep_for(std::chrono::seconds(1));
    if (CpuSeconds(daemon) - before < 0.5) {
      return true;
    }
  }
  return false;
}

// Connections that say nothing.
class RawConnections {
 public:
  explicit RawConnections(const std::string& socket_path) {
    std::strcpy(name_.sun_path, socket_path.c_str());
  }
  ~RawConnections() { Close(); }

  void Open(int count) {
    for (int i = 0; i < count; ++i) {
      fds_.push_back(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
      EXPECT_EQ(connect(fds_.back(), reinterpret_cast<const sockaddr*>(&name_), sizeof(name_)), 0);
    }
  }
  void Close() {
    for (const int fd : fds_) {
      close(fd);
    }
    fds_.clear();
  }

 private:
  sockaddr_un name_{.sun_family = AF_UNIX};
  std::vector<int> fds_;
};

// Else the next files that it opens get their numbers, and its log goes into one of these.
TEST(StandardDescriptorsTest, ClosedOnesLeadToNothing) {
  platform::TemporaryFolder folder;
  DaemonProcess daemon(folder.path(), "", {}, "exec <&- >&- 2>&-");
  JobClient client(DaemonProcess::Address(folder.path()));
  client.Submitted("one", 1);
  for (const char* const descriptor : {"0", "1", "2"}) {
    const std::string link = "/proc/" + std::to_string(daemon.pid()) + "/fd/" + descriptor;
    EXPECT_EQ(std::filesystem::read_symlink(link), "/dev/null") << descriptor;
  }
  EXPECT_EQ(daemon.Stop(), 0);
}

using DescriptorsTest = DaemonTest;

TEST_F(DescriptorsTest, WithoutDescriptorsItWaitsAndRecovers) {
  client_.Submitted("one", 1);
  SetLimit(daemon_, RLIMIT_NOFILE, 3);  // below what it has open: accept fails, also with the spare one
  RawConnections flood(folder_.path() + "/socket");
  flood.Open(20);
  client_.Submitted("two", 1);
  EXPECT_TRUE(IsIdle(daemon_)) << "it spins";
  flood.Close();
  SetLimit(daemon_, RLIMIT_NOFILE, 1024);
  JobClient(DaemonProcess::Address(folder_.path())).Submitted("three", 1);
  EXPECT_EQ(daemon_.Stop(), 0);
}

// A daemon, and what it says of itself and of worker "w", whose stream is this test's.
class FullDiskTest : public DaemonTest {
 protected:
  void Connect(int slots = 0) {
    session_ = std::make_unique<WorkerSession>(client_.channel(), HelloOf("w", slots));
  }
  // Until the controller says this of the worker; "": it lists none.
  void AwaitReason(const std::string& reason) {
    JobClient::Until([&] {
      const v1::ListWorkersResponse listed = client_.Workers();
      return listed.workers().empty() ? reason.empty() : listed.workers(0).reason() == reason;
    });
  }
  // Until there is no room for one more.
  void SubmitJobs() {
    v1::Job job;
    grpc::Status status;
    for (int i = 0; status.ok() && i < 1000; ++i) {
      status = client_.Submit(JobClient::SpecOf("job-" + std::to_string(i), 1), "", job);
    }
    EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED) << status.error_message();
  }

  std::unique_ptr<WorkerSession> session_;
};

TEST_F(FullDiskTest, AFullDiskRefusesSubmitsAndServesReads) {
  SimulatedWorker worker("a", DaemonProcess::Address(folder_.path()), {.hold = true});
  v1::Job job;
  ASSERT_TRUE(client_.Submit(JobClient::SpecOf("held", 1), "r0", job).ok());
  client_.AwaitRunning("held");

  SetLimit(daemon_, RLIMIT_FSIZE, 400'000);  // of each file, as a full disk
  std::vector<std::string> acknowledged;
  grpc::Status status;
  for (int i = 0; status.ok() && i < 1000; ++i) {
    const std::string number = std::to_string(i);
    status = client_.Submit(JobClient::SpecOf("job-" + number, 1), "r-" + number, job);
    if (status.ok()) {
      acknowledged.push_back(job.id());
    }
  }
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED) << status.error_message();
  EXPECT_THAT(status.error_message(),
              HasSubstr("the request, which has no effect: " + folder_.path() + "/state/controller.db"));
  EXPECT_THAT(status.error_message(), HasSubstr("make room on that file system"));
  worker.Release();  // the job ends where nothing can be stored
  JobClient::Until([&] { return worker.ended() == 1; });
  ASSERT_TRUE(client_.Get("held", job).ok()) << "what is stored can be read";
  EXPECT_EQ(job.state(), v1::JOB_STATE_RUNNING);
  ASSERT_FALSE(acknowledged.empty());
  status = client_.Submit(JobClient::SpecOf("job-0", 1), "r-0", job);
  EXPECT_TRUE(status.ok()) << "it has been taken: " << status.error_message();
  EXPECT_EQ(job.id(), acknowledged[0]);
  EXPECT_THAT(Log(), HasSubstr("the store's disk is full"));
  EXPECT_THAT(StoreError(), HasSubstr(folder_.path() + "/state/controller.db"));

  SetLimit(daemon_, RLIMIT_FSIZE, RLIM_INFINITY);
  ASSERT_TRUE(client_.Follow("held", job).ok());
  EXPECT_EQ(job.state(), v1::JOB_STATE_SUCCEEDED) << job.message();
  EXPECT_EQ(worker.starts().at(job.id()), 1);
  // The job's end is small: it may have been stored before there was room for a job.
  JobClient::Until([&] { return StoreError().empty(); });
  const std::string refused = std::to_string(acknowledged.size());
  ASSERT_TRUE(client_.Submit(JobClient::SpecOf("job-" + refused, 1), "r-" + refused, job).ok());
  ASSERT_TRUE(client_.Follow("job-" + refused, job).ok());
  EXPECT_EQ(job.state(), v1::JOB_STATE_SUCCEEDED) << job.message();
  EXPECT_THAT(Log(), HasSubstr("the store can be written again"));
  for (size_t i = 0; i < acknowledged.size(); ++i) {
    const std::string number = std::to_string(i);
    ASSERT_TRUE(client_.Submit(JobClient::SpecOf("job-" + number, 1), "r-" + number, job).ok());
    EXPECT_EQ(job.id(), acknowledged[i]) << "the same job, by its request id";
  }
  EXPECT_EQ(daemon_.Stop(), 0);
}

TEST_F(FullDiskTest, RoomForLittleIsNotEnoughRoom) {
  Connect();
  SetLimit(daemon_, RLIMIT_FSIZE, 400'000);
  SubmitJobs();
  session_->Cancel();  // the event of its end is smaller than a job
  AwaitReason("NotConnected");
  EXPECT_NE(StoreError(), "");
  EXPECT_THAT(Log(), Not(HasSubstr("the store can be written again")));
  EXPECT_EQ(daemon_.Stop(), 0);
}

// Or it would be counted in an alert as one that has vanished.
TEST_F(FullDiskTest, WorkerLeavingOnRequestIsNotListed) {
  Connect();
  v1::WorkerMessage message;
  message.set_seq(2);
  message.mutable_heartbeat()->set_draining(true);
  ASSERT_TRUE((*session_)->Write(message));
  AwaitReason("Draining");
  SetLimit(daemon_, RLIMIT_FSIZE, 1);  // not even for that
  SubmitJobs();
  session_->Cancel();
  AwaitReason("");
  EXPECT_NE(StoreError(), "");
  EXPECT_EQ(daemon_.Stop(), 0);
}

// They may wait for hours, and the start of another job of that worker must not.
TEST_F(FullDiskTest, WorkerIsHeardWhileItsNoticesWait) {
  Connect(/*slots=*/1);
  client_.Submitted("saves", 1);
  const v1::AttemptId id = FirstAttempt(**session_);
  SetLimit(daemon_, RLIMIT_FSIZE, 1);
  v1::WorkerMessage message;
  message.set_seq(1);
  const auto next = [&]() -> v1::WorkerMessage& {
    const uint64_t seq = message.seq() + 1;
    message.Clear();
    message.set_seq(seq);
    return message;
  };
  for (int i = 1; i <= 1000; ++i) {
    v1::CheckpointNotice& notice = *next().mutable_checkpoint();
    *notice.mutable_id() = id;
    notice.set_number(i);
    notice.mutable_committed()->set_step(i);
    ASSERT_TRUE((*session_)->Write(message));
  }
  for (int i = 0; i < 500; ++i) {  // faster than they are answered
    *next().mutable_get()->mutable_id() = id;
    message.mutable_get()->set_key(std::to_string(i));
    ASSERT_TRUE((*session_)->Write(message));
  }
  next().mutable_heartbeat()->set_draining(true);
  ASSERT_TRUE((*session_)->Write(message));
  AwaitReason("Draining");
  EXPECT_NE(StoreError(), "");
  EXPECT_EQ(daemon_.Stop(), 0);
}

// What becomes of the state directory while a controller has it.
class StateDirectoryTest : public DaemonTest {
 protected:
  // The daemon may notice by itself before the submit comes: then it has no answer, and it does not wait for
  // one. What a submit is told that comes first: engine_test.cc.
  void ExpectRefusalAndEnd(const std::string& file) {
    v1::SubmitRequest request;
    *request.mutable_spec() = JobClient::SpecOf("lost", 1);
    v1::Job job;
    const grpc::Status status = client_.Call(&v1::Jobs::Stub::Submit, request, job, /*waits=*/false);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAVAILABLE) << "it must not be acknowledged";
    ExpectEnd(file + " was deleted, moved or replaced");
  }
  void ExpectEnd(const std::string& why) {
    const int end = daemon_.Wait();
    EXPECT_TRUE(WIFEXITED(end) && WEXITSTATUS(end) == 1) << end;
    EXPECT_THAT(Log(), HasSubstr(why));
  }

  const std::string state_ = folder_.path() + "/state";
};

TEST_F(StateDirectoryTest, AnotherOneInItsPlaceIsNotTouched) {
  client_.Submitted("kept", 1);
  std::filesystem::rename(state_, state_ + "-moved");
  std::filesystem::create_directories(state_);
  std::ofstream(state_ + "/controller.db-wal") << "of another controller";
  ExpectRefusalAndEnd(state_ + "/controller.db");
  EXPECT_TRUE(std::filesystem::exists(state_ + "/controller.db-wal"));
}

TEST_F(StateDirectoryTest, DeletedFileIsNoticedWithoutRequests) {
  client_.Submitted("kept", 1);
  std::filesystem::remove(state_ + "/history.db");
  ExpectEnd(state_ + "/history.db was deleted");
}

// Or what its ranks saved would not be told again to the next controller.
TEST_F(StateDirectoryTest, WhatAWorkerReportsThereIsNotAcknowledged) {
  WorkerSession session(client_.channel(), HelloOf("w", 1));
  client_.Submitted("job", 1);
  v1::WorkerMessage message;
  message.set_seq(2);
  v1::CheckpointNotice& notice = *message.mutable_checkpoint();
  *notice.mutable_id() = FirstAttempt(*session);
  notice.set_number(1);
  notice.mutable_committed()->set_step(50);
  std::filesystem::remove_all(state_);
  session->Write(message);
  for (v1::ControllerMessage answer; session->Read(&answer);) {
    EXPECT_LT(answer.ack(), 2u);
  }
  EXPECT_FALSE(session->Finish().ok());
  daemon_.Wait();
}

// kB of memory that a process has had at most since it began.
int64_t PeakKb(const DaemonProcess& daemon) {
  std::ifstream status("/proc/" + std::to_string(daemon.pid()) + "/status");
  for (std::string line; std::getline(status, line);) {
    if (line.rfind("VmHWM:", 0) == 0) {
      return std::stoll(line.substr(6));
    }
  }
  ADD_FAILURE() << "no VmHWM";
  return 0;
}

class BigMessageTest : public DaemonTest {
 protected:
  grpc::Status Submit(size_t bytes, grpc_compression_algorithm compression = GRPC_COMPRESS_NONE) {
    grpc::ClientContext context;
    JobClient::SetDeadline(context, 60);
    context.set_compression_algorithm(compression);
    v1::SubmitRequest request;
    request.mutable_spec()->set_name(std::string(bytes, 'x'));
    v1::Job job;
    return client_.stub().Submit(&context, request, &job);
  }
};

TEST_F(BigMessageTest, OverTheLimitOnlyTheMessageIsRefused) {
  client_.Submitted("before", 1);
  const grpc::Status status = Submit(size_t{64} << 20);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED) << status.error_message();
  EXPECT_THAT(status.error_message(), HasSubstr("larger than max"));
  // The same connection goes on.
  client_.Submitted("after", 1);
  EXPECT_EQ(Submit(4'000'000).error_code(), grpc::StatusCode::INVALID_ARGUMENT)
      << "read, and refused as a spec";
  EXPECT_EQ(daemon_.Stop(), 0);
}

TEST_F(BigMessageTest, ACompressedOneCannotGrowBeyondTheLimit) {
  client_.Submitted("before", 1);
  const int64_t before = PeakKb(daemon_);
  // No longer: while the client compresses, it answers no keepalive.
  constexpr size_t kBytes = size_t{64} << 20;
  for (const grpc_compression_algorithm algorithm : {GRPC_COMPRESS_GZIP, GRPC_COMPRESS_DEFLATE}) {
    const grpc::Status status = Submit(kBytes, algorithm);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::UNIMPLEMENTED) << status.error_message();
    EXPECT_THAT(status.error_message(), HasSubstr("is disabled"));
  }
  EXPECT_LT(PeakKb(daemon_) - before, 10'000);
  EXPECT_EQ(daemon_.Stop(), 0);
}

}  // namespace
}  // namespace tandem::controller
