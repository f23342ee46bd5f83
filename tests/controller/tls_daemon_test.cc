// SPDX-License-Identifier: Apache-2.0
// The daemon that listens: with TLS on a port, and not without it.
#include <gmock/gmock.h>

#include <fstream>
#include <optional>
#include <string>
#include <vector>

#include "tests/controller/daemon_process.h"
#include "tests/controller/secure_service.h"
#include "tests/platform/temporary_folder.h"
#include "tests/tls/certificates.h"

namespace tandem::controller {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using tls::Role;

// The daemon with TLS on a port of loopback, and a folder of certificates.
class TlsDaemonTest : public ::testing::Test {
 protected:
  TlsDaemonTest() {
    const tls::TlsFiles files = certificates_.Files("controller", certificates_.OfServer());
    daemon_.emplace(folder_.path(), "",
                    std::vector<std::string>{"--listen", "127.0.0.1:0", "--tls-ca", files.ca, "--tls-cert",
                                             files.certificate, "--tls-key", files.key});
    JobClient::Until(
        [&] { return DaemonProcess::Log(folder_.path()).find("\"serving\"") != std::string::npos; });
    const std::string log = DaemonProcess::Log(folder_.path());
    const size_t at = log.find("127.0.0.1:");
    address_ = log.substr(at, log.find('"', at) - at);
  }

  std::shared_ptr<grpc::ChannelCredentials> Of(Role role, const char* name) {
    return CredentialsOf(certificates_, certificates_.Of({role, name}));
  }

  platform::TemporaryFolder folder_;
  tls::Certificates certificates_;
  std::optional<DaemonProcess> daemon_;
  std::string address_;
};

TEST_F(TlsDaemonTest, TheAuditLogNamesCallersWithoutSecrets) {
  JobClient alice(address_, Of(Role::kUser, "alice"));
  JobClient bob(address_, Of(Role::kUser, "bob"));
  v1::Job job = alice.Submitted("hers", 1);
  v1::SubmitRequest text;
  text.set_text(R"({"name": "written", "model": {"preset": "llama-tiny"},
    "data": {"train": "/usr/include", "tokenizer": "bytes"},
    "training": {"steps": 1, "sequence_length": 64, "micro_batch_size": 1, "global_batch_size": 1}})");
  grpc::ClientContext first;
  JobClient::SetDeadline(first);
  const grpc::Status written = alice.stub().Submit(&first, text, &job);
  EXPECT_TRUE(written.ok()) << written.error_message();
  grpc::ClientContext context;
  JobClient::SetDeadline(context);
  auto request = JobClient::Of<v1::CancelRequest>("hers");
  EXPECT_FALSE(bob.stub().Cancel(&context, request, &job).ok());
  JobClient local(DaemonProcess::Address(folder_.path()));
  grpc::ClientContext second;
  JobClient::SetDeadline(second);
  EXPECT_TRUE(local.stub().Cancel(&second, request, &job).ok()) << "who may open the socket";
  const std::string log = DaemonProcess::Log(folder_.path());
  EXPECT_THAT(log,
              HasSubstr(R"("msg":"audit","component":"controller","who":"user/alice","from":"127.0.0.1:)"));
  EXPECT_THAT(log, HasSubstr(R"("method":"tandem.v1.Jobs/Submit","job":"hers","result":"OK")"));
  EXPECT_THAT(log, HasSubstr(R"("method":"tandem.v1.Jobs/Submit","job":"written","result":"OK")"));
  EXPECT_THAT(log, HasSubstr(R"("who":"user/bob")"));
  EXPECT_THAT(log,
              HasSubstr(R"("method":"tandem.v1.Jobs/Cancel","job":"hers","result":"PERMISSION_DENIED")"));
  EXPECT_THAT(log, HasSubstr(R"("who":"local","from":"unix","method":"tandem.v1.Jobs/Cancel")"));
  EXPECT_THAT(log, Not(HasSubstr("PRIVATE KEY")));
  std::ifstream file("/proc/" + std::to_string(daemon_->pid()) + "/cmdline");
  const std::string arguments(std::istreambuf_iterator<char>(file), {});
  EXPECT_THAT(arguments, AllOf(HasSubstr("controller.key"), Not(HasSubstr("PRIVATE KEY"))));
  EXPECT_EQ(daemon_->Stop(), 0);
}

TEST(ListenTest, WithoutTlsOtherMachinesAreNotListenedTo) {
  ServerOptions options{.metrics_listen = "off"};
  const auto expect_refused = [&](const std::string& flag) {
    const absl::Status status = CheckOptions(options);
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << flag << ": " << status;
    EXPECT_THAT(std::string(status.message()),
                AllOf(HasSubstr(flag), HasSubstr("without TLS only this machine may reach the controller"),
                      HasSubstr("--tls-ca")));
  };
  for (const char* listen :
       {"0.0.0.0:0", "[::]:0", "10.0.0.1:0", ":0", "127.evil.example:0", "example.org:0"}) {
    options.listen = {"127.0.0.1:0", listen};
    expect_refused(std::string("--listen ") + listen);
  }
  options.listen = {"127.0.0.1:0"};
  options.worker_listen = {"0.0.0.0:0"};
  expect_refused("--worker-listen 0.0.0.0:0");
}

TEST(ListenTest, RevocationsAreLookedForEverySecond) {
  EXPECT_LE(ServerOptions().sweep_every, absl::Seconds(1)) << "docs/security.md: within three seconds";
}

TEST(ListenTest, BadOptionsAreNamed) {
  EXPECT_EQ(CheckOptions({.listen = {"localhost"}}),
            absl::InvalidArgumentError(
                "--listen: \"localhost\" is not an address; allowed: unix:/PATH or HOST:PORT with a "
                "port from 0 to 65535, as in 127.0.0.1:7471"));
  EXPECT_EQ(CheckOptions({.metrics_listen = "127.0.0.1:94640"}),
            absl::InvalidArgumentError(
                "--metrics-listen: \"127.0.0.1:94640\" is not an address; allowed: HOST:PORT "
                "with a port from 0 to 65535, as in 127.0.0.1:9464, or off"));
  EXPECT_THAT(std::string(CheckOptions({.tls_domain = "a b"}).message()),
              HasSubstr("--tls-domain: \"a b\" is not a DNS name; allowed: "));
  EXPECT_THAT(std::string(CheckOptions({.metrics_listen = "off", .page = PageMode::kOn}).message()),
              ::testing::StartsWith("--page on: with --metrics-listen off"));
  platform::TemporaryFolder folder;
  const ServerOptions bad{.state_directory = folder.path(), .listen = {"localhost"}};
  EXPECT_EQ(Daemon::Start(bad, platform::SteadyClock(), platform::SystemRandom()).status(),
            CheckOptions(bad));
}

}  // namespace
}  // namespace tandem::controller
