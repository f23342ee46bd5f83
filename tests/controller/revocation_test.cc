// SPDX-License-Identifier: Apache-2.0
// Who had been let in and is to be kept out, and how many connections one may have.
#include <gmock/gmock.h>

#include <fstream>

#include "tests/controller/service_fixture.h"
#include "tests/controller/simulated_worker.h"
#include "tests/tls/certificates.h"
#include "tls/certificate.h"

namespace tandem::controller {
namespace {

using ::testing::HasSubstr;
using tls::Credential;
using tls::Role;

tls::TlsFiles FilesWithList(const tls::Certificates& certificates) {
  tls::TlsFiles files = certificates.Files("controller", certificates.OfServer());
  files.revoked = certificates.folder() + "/revoked";
  certificates.Write("revoked", "", 0644);
  return files;
}

class RevocationTest : public ServiceTest {
 protected:
  RevocationTest() : RevocationTest(std::make_unique<tls::Certificates>()) {}
  explicit RevocationTest(std::unique_ptr<tls::Certificates> certificates)
      : ServiceTest({}, FilesWithList(*certificates)), certificates_(std::move(certificates)) {}

  std::shared_ptr<grpc::ChannelCredentials> CredentialsOf(const Credential& credential) const {
    return grpc::SslCredentials(
        {certificates_->authority().certificate, credential.key, credential.certificate});
  }

  // A stream that says nothing until it ends.
  struct OpenWatch {
    OpenWatch(JobClient& client, const std::string& job) {
      v1::WatchRequest request;
      request.set_job(job);
      stream = client.stub().Watch(&context, request);
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

  std::unique_ptr<tls::Certificates> certificates_;
};

// The error of a caller whose connection has been ended: a call may still meet that one, and fail with it.
grpc::Status Refused(JobClient& client) {
  v1::Job job;
  grpc::Status status;
  JobClient::Until([&] {
    status = client.Get("queued", job);
    return status.error_code() != grpc::StatusCode::UNAVAILABLE;
  });
  return status;
}

TEST_F(RevocationTest, ARevokedCertificateLosesItsOpenStreamsAndGetsInNoMoreWhileTheOwnersNewOneDoes) {
  const Credential lost = certificates_->Of({Role::kUser, "bob"});
  JobClient thief(address(), CredentialsOf(lost));
  JobClient bob(address(), CredentialsOf(certificates_->Of({Role::kUser, "bob"})));
  v1::Job job;
  ASSERT_TRUE(bob.Submit(JobClient::SpecOf("queued", 1), "", job).ok());
  OpenWatch watched(thief, "queued");
  OpenWatch kept(bob, "queued");

  certificates_->Write("revoked", tls::DescribePem(lost.certificate)->fingerprint + "\n", 0644);
  EXPECT_FALSE(watched.End().ok());
  const grpc::Status refused = Refused(thief);
  EXPECT_EQ(refused.error_code(), grpc::StatusCode::UNAUTHENTICATED);
  EXPECT_THAT(refused.error_message(),
              HasSubstr("the certificate of CN=user/bob was revoked by the operator of this controller"));
  EXPECT_TRUE(bob.Get("queued", job).ok());
  kept.context.TryCancel();
  EXPECT_EQ(kept.End().error_code(), grpc::StatusCode::CANCELLED) << "it was open until now";
}

TEST_F(RevocationTest, TheListIsTakenWhileTheCertificateOrItsKeyCannotBeUsed) {
  JobClient bob(address(), CredentialsOf(certificates_->Of({Role::kUser, "bob"})));
  v1::Job job;
  ASSERT_TRUE(bob.Submit(JobClient::SpecOf("queued", 1), "", job).ok());
  OpenWatch watched(bob, "queued");
  certificates_->Write("controller.key", "half of a rotation", 0644);
  certificates_->Write("revoked", "user/bob\n", 0644);
  EXPECT_FALSE(watched.End().ok());
  EXPECT_EQ(Refused(bob).error_code(), grpc::StatusCode::UNAUTHENTICATED);
}

TEST_F(RevocationTest, ARevokedWorkerIsGoneWithAllOfItsCertificates) {
  SimulatedWorker worker("w", address(),
                         {.credentials = CredentialsOf(certificates_->Of({Role::kWorker, "w"}))});
  JobClient admin(address(), CredentialsOf(certificates_->Of({Role::kAdmin, "root"})));
  const auto is_connected = [&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));  // an admin may ask 50 times a second
    grpc::ClientContext context;
    JobClient::SetDeadline(context);
    v1::ListWorkersResponse response;
    EXPECT_TRUE(admin.stub().ListWorkers(&context, {}, &response).ok());
    return response.workers_size() == 1 && response.workers(0).connected();
  };
  JobClient::Until(is_connected);
  certificates_->Write("revoked", "worker/w\n", 0644);
  JobClient::Until([&] { return !is_connected(); });
  JobClient again(address(), CredentialsOf(certificates_->Of({Role::kWorker, "w"})));
  v1::Job job;
  EXPECT_THAT(again.Get("none", job).error_message(), HasSubstr("CN=worker/w was revoked"));
}

TEST_F(RevocationTest, OneUserCannotTakeTheConnectionsOfAllOthers) {
  const auto credentials = CredentialsOf(certificates_->Of({Role::kUser, "eve"}));
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
  JobClient bob(address(), CredentialsOf(certificates_->Of({Role::kUser, "bob"})));
  EXPECT_EQ(bob.Get("none", job).error_code(), grpc::StatusCode::NOT_FOUND);
  clients.resize(100);
  JobClient::Until([&] {
    return JobClient(address(), credentials).Get("none", job).error_code() == grpc::StatusCode::NOT_FOUND;
  });
}

TEST_F(RevocationTest, RefusalsOfOneCallerDoNotFillTheLog) {
  JobClient eve(address(), CredentialsOf(certificates_->Of({Role::kUser, "eve"})));
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
