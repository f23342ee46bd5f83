// SPDX-License-Identifier: Apache-2.0
// Who had been let in and is to be kept out, and how many connections one may have.
#include <gmock/gmock.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <fstream>
#include <thread>

#include "absl/base/const_init.h"
#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "tests/controller/secure_service.h"
#include "tests/controller/simulated_worker.h"
#include "tests/tls/certificates.h"
#include "tests/tls/twin.h"
#include "tls/certificate.h"

namespace tandem::controller {
namespace {

using ::testing::HasSubstr;
using tls::Credential;
using tls::Role;

enum class Call { kSync, kSetTimes };

// No such call of this process returns while one of these is there: fsync and fdatasync, or futimens, with
// which a new certificate is published.
template <Call>
class Standstill {
 public:
  Standstill() {
    const absl::MutexLock lock(&mu_);
    stands_still_ = true;
    num_waiting_ = 0;
  }
  ~Standstill() { End(); }
  void End() {
    const absl::MutexLock lock(&mu_);
    stands_still_ = false;
  }
  // Until one has begun, or the test fails after two minutes.
  void WaitForOne() {
    const absl::MutexLock lock(&mu_);
    const auto waits = [] { return num_waiting_ > 0; };
    EXPECT_TRUE(mu_.AwaitWithTimeout(absl::Condition(&waits), absl::Minutes(2)));
  }
  static void Pass() {
    const absl::MutexLock lock(&mu_);
    ++num_waiting_;
    const auto goes_on = [] { return !stands_still_; };
    mu_.Await(absl::Condition(&goes_on));
  }

 private:
  static inline absl::Mutex mu_{absl::kConstInit};
  static inline bool stands_still_ = false;
  static inline int num_waiting_ = 0;
};

class RevocationTest : public SecureServiceTest {
 protected:
  // A stream that says nothing until it ends.
  struct OpenWatch {
    OpenWatch(JobClient& client, const std::string& job) {
      JobClient::SetDeadline(context, 120);
      stream = client.stub().Watch(&context, JobClient::Of<v1::WatchRequest>(job));
      v1::WatchResponse response;
      EXPECT_TRUE(stream->Read(&response));
    }
    // How it ends.
    grpc::Status End() {
      v1::WatchResponse response;
      while (stream->Read(&response)) {
      }
      return stream->Finish();
    }
    grpc::ClientContext context;
    std::unique_ptr<grpc::ClientReader<v1::WatchResponse>> stream;
  };
};

// Of a call that does not wait for a better time.
grpc::Status CallOnce(const JobClient& client) {
  v1::Job job;
  return client.Call(&v1::Jobs::Stub::GetJob, JobClient::Of<v1::GetJobRequest>("queued"), job,
                     /*waits=*/false);
}

// Whether a caller is kept out: by the call, over a connection that is still there, or in the handshake.
bool IsKeptOut(const JobClient& client) {
  const grpc::StatusCode code = CallOnce(client).error_code();
  return code == grpc::StatusCode::UNAUTHENTICATED || code == grpc::StatusCode::UNAVAILABLE;
}

TEST_F(RevocationTest, RevocationEndsStreamsButNotTheNewCertificate) {
  const Credential lost = certificates_->Of({Role::kUser, "bob"});
  JobClient thief(address(), CredentialsOf(*certificates_, lost));
  JobClient bob(address(), Of(Role::kUser, "bob"));
  v1::Job job = bob.Submitted("queued", 1);
  OpenWatch watched(thief, "queued");
  OpenWatch kept(bob, "queued");

  certificates_->Write("revoked", tls::DescribePem(lost.certificate)->fingerprints->front() + "\n", 0644);
  EXPECT_FALSE(watched.End().ok());
  EXPECT_TRUE(IsKeptOut(thief));
  EXPECT_TRUE(IsKeptOut(JobClient(address(), CredentialsOf(*certificates_, lost))));
  EXPECT_TRUE(bob.Get("queued", job).ok());
  kept.context.TryCancel();
  EXPECT_EQ(kept.End().error_code(), grpc::StatusCode::CANCELLED) << "it was open until now";
}

TEST_F(RevocationTest, TwinOfARevokedCertificateIsRefused) {
  const Credential lost = certificates_->Of({Role::kUser, "bob"});
  Credential twin = lost;
  twin.certificate = tls::TwinOf(lost.certificate, certificates_->authority().certificate);
  JobClient thief(address(), CredentialsOf(*certificates_, twin));
  JobClient late(address(), CredentialsOf(*certificates_, twin));
  JobClient bob(address(), Of(Role::kUser, "bob"));
  v1::Job job = bob.Submitted("queued", 1);
  OpenWatch watched(thief, "queued");
  ASSERT_TRUE(late.Get("queued", job).ok());

  certificates_->Write("revoked", tls::DescribePem(lost.certificate)->fingerprints->front() + "\n", 0644);
  EXPECT_EQ(watched.End().error_code(), grpc::StatusCode::UNAVAILABLE) << "the sweep ends its connection";
  JobClient::Until([&] { return IsKeptOut(late); });
  EXPECT_TRUE(IsKeptOut(JobClient(address(), CredentialsOf(*certificates_, twin)))) << "in the handshake";
  EXPECT_TRUE(bob.Get("queued", job).ok());
}

TEST_F(RevocationTest, RevocationDoesNotWaitForTheDisk) {
  JobClient bob(address(), Of(Role::kUser, "bob"));
  JobClient ada(address(), Of(Role::kUser, "ada"));
  bob.Submitted("queued", 1);
  OpenWatch watched(bob, "queued");
  Standstill<Call::kSync> standstill;
  std::thread submit([&] {
    v1::Job later;
    EXPECT_TRUE(ada.Submit(JobClient::SpecOf("later", 1), "", later).ok());
  });
  standstill.WaitForOne();
  certificates_->Write("revoked", "user/bob\n", 0644);
  EXPECT_EQ(watched.End().error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_TRUE(IsKeptOut(bob));
  standstill.End();
  submit.join();
}

TEST_F(RevocationTest, RevocationsWaitForNoNewCertificate) {
  JobClient bob(address(), Of(Role::kUser, "bob"));
  bob.Submitted("queued", 1);
  OpenWatch watched(bob, "queued");
  Standstill<Call::kSetTimes> standstill;
  certificates_->Files("controller", certificates_->OfServer());
  standstill.WaitForOne();
  certificates_->Write("revoked", "user/bob\n", 0644);
  EXPECT_EQ(watched.End().error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_TRUE(IsKeptOut(bob));
}

TEST_F(RevocationTest, RevocationsAreTakenDespiteABadCertificate) {
  JobClient bob(address(), Of(Role::kUser, "bob"));
  bob.Submitted("queued", 1);
  OpenWatch watched(bob, "queued");
  certificates_->Write("controller.key", "half of a rotation", 0644);
  certificates_->Write("controller.crt", "", 0644);  // gRPC would end the process if it read this
  certificates_->Write("revoked", "user/bob\n", 0644);
  EXPECT_FALSE(watched.End().ok());
  EXPECT_TRUE(IsKeptOut(bob));
}

TEST_F(RevocationTest, RevokedWorkerLosesAllCertificates) {
  SimulatedWorker worker("w", address(), {.credentials = Of(Role::kWorker, "w")});
  JobClient admin(address(), Of(Role::kAdmin, "root"));
  const auto is_connected = [&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));  // an admin may ask 50 times a second
    const v1::ListWorkersResponse response = admin.Workers();
    return response.workers_size() == 1 && response.workers(0).connected();
  };
  JobClient::Until(is_connected);
  certificates_->Write("revoked", "worker/w\n", 0644);
  JobClient::Until([&] { return !is_connected(); });
  EXPECT_TRUE(IsKeptOut(JobClient(address(), Of(Role::kWorker, "w"))));
}

TEST_F(RevocationTest, OneUserCannotTakeAllConnections) {
  const auto credentials = Of(Role::kUser, "eve");
  std::vector<std::unique_ptr<JobClient>> clients;
  v1::Job job;
  grpc::Status last;
  for (int i = 0; i <= 256; ++i) {
    clients.push_back(std::make_unique<JobClient>(address(), credentials));
    last = clients.back()->Get("none", job);
    ASSERT_EQ(last.error_code(), i < 256 ? grpc::StatusCode::NOT_FOUND : grpc::StatusCode::RESOURCE_EXHAUSTED)
        << i << ": " << last.error_message();
  }
  EXPECT_THAT(last.error_message(), HasSubstr("user/eve has 256 connections open"));
  JobClient bob(address(), Of(Role::kUser, "bob"));
  EXPECT_EQ(bob.Get("none", job).error_code(), grpc::StatusCode::NOT_FOUND);
  clients.resize(100);
  JobClient::Until([&] {
    return JobClient(address(), credentials).Get("none", job).error_code() == grpc::StatusCode::NOT_FOUND;
  });
}

TEST_F(RevocationTest, RefusalsDoNotFillTheLog) {
  JobClient eve(address(), Of(Role::kUser, "eve"));
  const auto workers = v1::Workers::NewStub(eve.channel());
  ::testing::internal::CaptureStderr();
  int denied = 0;
  int limited = 0;
  for (int i = 0; i < 700; ++i) {
    grpc::ClientContext context;
    JobClient::SetDeadline(context);
    const auto stream = workers->Session(&context);
    v1::ControllerMessage message;
    while (stream->Read(&message)) {
    }
    const grpc::StatusCode code = stream->Finish().error_code();
    denied += code == grpc::StatusCode::PERMISSION_DENIED ? 1 : 0;
    limited += code == grpc::StatusCode::RESOURCE_EXHAUSTED ? 1 : 0;
  }
  const std::string log = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(denied + limited, 700);
  EXPECT_GT(denied, 400);
  size_t lines = 0;
  for (size_t at = log.find("\"msg\":\"audit\""); at != std::string::npos;
       at = log.find("\"msg\":\"audit\"", at + 1)) {
    ++lines;
  }
  EXPECT_GE(lines, 100U);
  EXPECT_LT(lines, 300U);
}

}  // namespace
}  // namespace tandem::controller

// Instead of libc's, for SQLite too.
extern "C" int fsync(int fd) {
  tandem::controller::Standstill<tandem::controller::Call::kSync>::Pass();
  return static_cast<int>(syscall(SYS_fsync, fd));
}
extern "C" int fdatasync(int fd) {
  tandem::controller::Standstill<tandem::controller::Call::kSync>::Pass();
  return static_cast<int>(syscall(SYS_fdatasync, fd));
}
extern "C" int futimens(int fd, const timespec* times) noexcept {
  tandem::controller::Standstill<tandem::controller::Call::kSetTimes>::Pass();
  return static_cast<int>(syscall(SYS_utimensat, fd, nullptr, times, 0));
}
