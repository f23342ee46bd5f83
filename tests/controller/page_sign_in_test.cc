// SPDX-License-Identifier: Apache-2.0
// Who may do what by way of the page, over real HTTP beside real TLS.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>

#include "absl/time/clock.h"
#include "controller/http/session_api.h"
#include "nlohmann/json.hpp"
#include "platform/random.h"
#include "tests/controller/http_client.h"
#include "tests/controller/secure_service.h"
#include "tests/controller/simulated_worker.h"
#include "tests/platform/fake_clock.h"
#include "tests/platform/temporary_folder.h"
#include "tests/tls/certificates.h"
#include "tls/certificate.h"

namespace tandem::controller {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;
using tls::Credential;
using tls::Role;

class PageSignInTest : public ::testing::Test {
 protected:
  void Start(const std::string& metrics_listen = "127.0.0.1:0", PageMode page = PageMode::kAuto) {
    server_ = StartServer(
        folder_, {.tls = FilesWithList(certificates_), .metrics_listen = metrics_listen, .page = page});
    ASSERT_NE(server_, nullptr);
    alice_ = std::make_unique<JobClient>(address(), Of(certificates_.Of({Role::kUser, "alice"})));
  }
  const std::string& address() { return server_->addresses().at(0); }
  std::shared_ptr<grpc::ChannelCredentials> Of(const Credential& credential) {
    return CredentialsOf(certificates_, credential);
  }

  struct Answer {
    int status = 0;
    std::string text;
    nlohmann::json json() const { return nlohmann::json::parse(text.substr(text.find("\r\n\r\n") + 4)); }
  };
  Answer Ask(const std::string& method, const std::string& path, const std::string& headers = "") {
    HttpConnection connection(server_->metrics_address());
    connection.Send(method + " " + path + " HTTP/1.1\r\nHost: localhost\r\n" + headers +
                    (method == "POST" ? "Content-Length: 0\r\n" : "") + "\r\n");
    const std::string text = connection.Read();
    return {.status = std::stoi(text.substr(9, 3)), .text = text};
  }
  Answer Post(const std::string& path, const std::string& secret) {
    return Ask("POST", path, "Authorization: Bearer " + secret + "\r\n");
  }

  grpc::Status AskForCode(const Credential& credential, v1::SignInResponse& response) {
    return JobClient(address(), Of(credential)).Call(&v1::Jobs::Stub::SignIn, {}, response);
  }
  std::string CodeOf(const Credential& credential) {
    v1::SignInResponse response;
    const grpc::Status status = AskForCode(credential, response);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return response.code();
  }
  std::string SessionOf(const Credential& credential) {
    const Answer answer = Post("/api/SignIn", CodeOf(credential));
    EXPECT_EQ(answer.status, 200) << answer.text;
    return answer.json()["session"];
  }
  std::string SessionOf(Role role, const std::string& name) {
    return SessionOf(certificates_.Of({role, name}));
  }
  v1::Job Submitted(const std::string& name) {
    v1::Job job;
    EXPECT_TRUE(alice_->Submit(JobClient::SpecOf(name, 1), "", job).ok());
    return job;
  }

  platform::TemporaryFolder folder_;
  const tls::Certificates certificates_;
  std::unique_ptr<Daemon> server_;
  std::unique_ptr<JobClient> alice_;
};

TEST_F(PageSignInTest, ChangesNeedASessionThatMayMakeThem) {
  Start();
  const std::string unused = CodeOf(certificates_.Of({Role::kUser, "alice"}));
  const std::string over = SessionOf(Role::kUser, "alice");
  EXPECT_EQ(Post("/api/SignOut", over).status, 200);
  const auto bearer = [](const std::string& secret) { return "Authorization: Bearer " + secret + "\r\n"; };
  // The header of each, and the status of a call for alice's job that waits; 0: it is allowed.
  const std::map<std::string, std::pair<std::string, int>> callers = {
      {"nobody", {"", 401}},
      {"an empty header", {"Authorization: \r\n", 401}},
      {"another scheme", {"Authorization: Basic YWxpY2U6\r\n", 401}},
      {"a cookie", {"Cookie: session=" + SessionOf(Role::kUser, "alice") + "\r\n", 401}},
      {"no session", {bearer(std::string(32, '0')), 401}},
      {"half a session", {bearer("0123"), 401}},
      {"what is not text", {bearer(std::string(32, '\xff')), 401}},
      {"a code that was not used", {bearer(unused), 401}},
      {"signed out", {bearer(over), 401}},
      {"another user", {bearer(SessionOf(Role::kUser, "bob")), 403}},
      {"the owner", {bearer(SessionOf(Role::kUser, "alice")), 0}},
      {"an admin", {bearer(SessionOf(Role::kAdmin, "root")), 0}},
  };
  // What a job that waits answers to those who may.
  const std::map<std::string, int> calls = {{"Cancel", 200}, {"Checkpoint", 409}, {"Profile", 409}};
  int number = 0;
  for (const auto& [who, caller] : callers) {
    for (const auto& [method, allowed] : calls) {
      SCOPED_TRACE(method + " by " + who);
      const v1::Job job = Submitted("job-" + std::to_string(++number));
      const Answer answer =
          Ask("POST", "/api/" + method + "?job=" + job.id() + (method == "Profile" ? "&steps=1" : ""),
              caller.first);
      EXPECT_EQ(answer.status, caller.second == 0 ? allowed : caller.second) << answer.text;
      v1::Job then;
      ASSERT_TRUE(alice_->Get(job.id(), then).ok());
      EXPECT_EQ(then.state(), answer.status == 200 ? v1::JOB_STATE_CANCELLED : v1::JOB_STATE_QUEUED);
    }
  }
}

TEST_F(PageSignInTest, OnlyUsersAndAdminsGetACode) {
  Start();
  v1::SignInResponse response;
  EXPECT_EQ(AskForCode(certificates_.Of({Role::kWorker, "w"}), response).error_code(),
            grpc::StatusCode::PERMISSION_DENIED);
  ASSERT_TRUE(AskForCode(certificates_.Of({Role::kAdmin, "root"}), response).ok());
  EXPECT_EQ(response.caller(), "admin/root");
  EXPECT_EQ(response.page(), server_->metrics_address());
  EXPECT_EQ(response.code_life().seconds(), 60);
}

TEST_F(PageSignInTest, CodeWorksOnceAndSessionNamesItsUser) {
  Start();
  const std::string code = CodeOf(certificates_.Of({Role::kUser, "alice"}));
  const Answer first = Post("/api/SignIn", code);
  ASSERT_EQ(first.status, 200) << first.text;
  EXPECT_EQ(first.json()["caller"], "user/alice");
  EXPECT_EQ(first.json()["seconds"], 8 * 3600);
  EXPECT_THAT(first.text, HasSubstr("Cache-Control: no-store"));
  const Answer second = Post("/api/SignIn", code);
  EXPECT_EQ(second.status, 401);
  EXPECT_THAT(second.text, HasSubstr("used before"));
  const std::string session = first.json()["session"];
  const std::string header = "Authorization: Bearer " + session + "\r\n";
  EXPECT_EQ(Ask("GET", "/api/GetServerInfo", header).json()["caller"], "user/alice");
  EXPECT_FALSE(Ask("GET", "/api/GetServerInfo").json().contains("caller"));
  EXPECT_EQ(Ask("GET", "/api/GetServerInfo", "Authorization: Bearer " + code + "\r\n").status, 401);
}

TEST_F(PageSignInTest, ChangesArePostsAndReadsAreGets) {
  Start();
  const std::string session = SessionOf(Role::kUser, "alice");
  Submitted("kept");
  for (const char* method : {"Cancel", "Checkpoint", "Profile", "SignIn", "SignOut"}) {
    EXPECT_EQ(
        Ask("GET", std::string("/api/") + method + "?job=kept", "Authorization: Bearer " + session + "\r\n")
            .status,
        405)
        << method;
  }
  for (const char* path : {"/api/GetJob?job=kept", "/api/ListJobs", "/", "/metrics", "/healthz"}) {
    EXPECT_EQ(Post(path, session).status, 405) << path;
  }
  EXPECT_EQ(Ask("OPTIONS", "/api/Cancel?job=kept", "Origin: http://evil.example\r\n").status, 405)
      << "no other site may send a header of its own here";
  v1::Job then;
  ASSERT_TRUE(alice_->Get("kept", then).ok());
  EXPECT_EQ(then.state(), v1::JOB_STATE_QUEUED);
  EXPECT_EQ(Ask("GET", "/api/GetServerInfo", "Authorization: Bearer " + session + "\r\n").status, 200);
}

TEST_F(PageSignInTest, ARevokedCertificateEndsItsSessions) {
  Start();
  const Credential lost = certificates_.Of({Role::kUser, "alice"});
  const std::string stolen = SessionOf(lost);
  const std::string kept = SessionOf(Role::kUser, "alice");
  certificates_.Write("revoked", tls::DescribePem(lost.certificate)->fingerprints->front() + "\n", 0644);
  const auto status = [&](const std::string& session) {
    return Ask("GET", "/api/GetServerInfo", "Authorization: Bearer " + session + "\r\n").status;
  };
  JobClient::Until([&] {
    absl::SleepFor(absl::Milliseconds(50));  // within alice's rate
    return status(stolen) == 401;
  });
  EXPECT_EQ(status(kept), 200);
}

TEST_F(PageSignInTest, ASecretOverTheNetworkIsNotTaken) {
  HttpRequest request{.path = "/api/Cancel", .authorization = "Bearer " + std::string(32, 'a')};
  for (const char* ip : {"127.0.0.1", "127.8.0.1", "::1", "::ffff:127.0.0.1"}) {
    request.client_ip = ip;
    EXPECT_TRUE(SessionApi::SecretOf(request).ok()) << ip;
  }
  for (const char* ip : {"10.0.0.3", "::ffff:10.0.0.3", "fe80::1", "1127.0.0.1", ""}) {
    request.client_ip = ip;
    const absl::Status status = SessionApi::SecretOf(request).status();
    EXPECT_TRUE(absl::IsPermissionDenied(status)) << ip;
    EXPECT_THAT(std::string(status.message()), HasSubstr("ssh -L"));
  }
}

// A proxy that asks for passwords hands its header on.
TEST_F(PageSignInTest, ForeignAuthorizationStillReads) {
  Start();
  const std::string proxys = "Authorization: Basic YWxpY2U6\r\n";
  EXPECT_EQ(Ask("GET", "/api/ListJobs", proxys).status, 200);
  EXPECT_EQ(Ask("GET", "/api/ListJobs", "Authorization: Bearer of-the-proxy\r\n").status, 200);
  EXPECT_EQ(Ask("POST", "/api/Cancel?job=none", proxys).status, 401);
}

TEST_F(PageSignInTest, ASessionThatHasCrossedTheNetworkEnds) {
  platform::FakeClock clock;
  SignIns sign_ins(platform::SystemRandom(), clock);
  AuditLog log(clock);
  sign_ins.SetPage(std::string("127.0.0.1:9464"));
  const Caller alice{.identity = {Role::kUser, "alice"}};
  const std::string session = sign_ins.Redeem(sign_ins.Issue(alice)->secret)->secret;
  SessionApi api(sign_ins, log);
  HttpRequest request{.path = "/api/ListJobs", .authorization = "Bearer " + session};
  request.client_ip = "127.0.0.1";
  EXPECT_EQ(*api.SessionOf(request), session);
  request.client_ip = "10.0.0.3";
  EXPECT_TRUE(absl::IsPermissionDenied(api.SessionOf(request).status()));
  EXPECT_EQ(sign_ins.Find(session), std::nullopt);
}

TEST_F(PageSignInTest, ImpossibleSignInGivesTheReason) {
  const Credential alice = certificates_.Of({Role::kUser, "alice"});
  v1::SignInResponse response;
  for (const auto& [listen, page] :
       {std::pair("off", PageMode::kAuto), {"127.0.0.1:0", PageMode::kOff}, {":0", PageMode::kAuto}}) {
    Start(listen, page);
    const grpc::Status status = AskForCode(alice, response);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
    EXPECT_THAT(status.error_message(), HasSubstr("has no page to sign in to")) << listen;
    server_.reset();
  }
  Start(":0", PageMode::kOn);
  ASSERT_TRUE(AskForCode(alice, response).ok());
  EXPECT_THAT(response.page(), StartsWith("127.0.0.1:"));
}

TEST_F(PageSignInTest, AuditLogNamesPageCallersWithoutSecrets) {
  Start();
  testing::internal::CaptureStderr();
  const std::string code = CodeOf(certificates_.Of({Role::kUser, "alice"}));
  const std::string session = Post("/api/SignIn", code).json()["session"];
  const std::string bobs = SessionOf(Role::kUser, "bob");
  Submitted("hers");
  EXPECT_EQ(Post("/api/Cancel?job=hers", bobs).status, 403);
  EXPECT_EQ(Post("/api/Cancel?job=hers", session).status, 200);
  EXPECT_EQ(Post("/api/SignOut", session).status, 200);
  EXPECT_EQ(Post("/api/SignIn", code).status, 401);
  EXPECT_EQ(Ask("POST", "/api/Cancel?job=hers").status, 401);
  EXPECT_EQ(Ask("POST", "/api/Checkpoint?job=hers", "Authorization: Basic YWxpY2U6\r\n").status, 401);
  EXPECT_EQ(Ask("GET", "/api/ListJobs", "Authorization: Basic YWxpY2U6\r\n").status, 200);
  server_.reset();
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_THAT(log, HasSubstr(R"("method":"tandem.v1.Jobs/SignIn")"));
  EXPECT_THAT(log, HasSubstr(R"("who":"user/alice","from":"page 127.0.0.1:)"));
  EXPECT_THAT(log, HasSubstr(R"("method":"page/SignIn","job":"","result":"OK")"));
  EXPECT_THAT(log, HasSubstr(R"("method":"page/SignIn","job":"","result":"UNAUTHENTICATED")"));
  EXPECT_THAT(log, HasSubstr(R"("method":"page/SignOut","job":"","result":"OK")"));
  EXPECT_THAT(log, HasSubstr(R"("method":"tandem.v1.Jobs/Cancel","job":"hers","result":"OK")"));
  EXPECT_THAT(log, HasSubstr(R"("method":"page/Cancel","job":"","result":"UNAUTHENTICATED")"));
  EXPECT_THAT(log, HasSubstr(R"("method":"page/Checkpoint","job":"","result":"UNAUTHENTICATED")"));
  EXPECT_THAT(log, Not(HasSubstr("page/ListJobs")));
  EXPECT_THAT(log,
              HasSubstr(R"("method":"tandem.v1.Jobs/Cancel","job":"hers","result":"PERMISSION_DENIED")"));
  EXPECT_THAT(log, AllOf(Not(HasSubstr(code)), Not(HasSubstr(session)), Not(HasSubstr(bobs))));
}

TEST_F(PageSignInTest, SessionsShareTheirUsersRate) {
  Start();
  const std::string session = SessionOf(Role::kUser, "alice");
  int status = 200;
  for (int i = 0; i < 5000 && status != 429; ++i) {
    status = Post("/api/Cancel?job=none", session).status;
  }
  EXPECT_EQ(status, 429);
  EXPECT_EQ(Ask("GET", "/api/ListJobs").status, 200) << "readers go on";
}

}  // namespace
}  // namespace tandem::controller
