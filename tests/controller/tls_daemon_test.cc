// SPDX-License-Identifier: Apache-2.0
// The daemon that listens: with TLS on a port, and not without it.
#include <gmock/gmock.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

#include "controller/rpc/open_connections.h"
#include "tests/controller/daemon_process.h"
#include "tests/controller/service_fixture.h"
#include "tests/controller/simulated_worker.h"
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
  explicit TlsDaemonTest(const std::string& setup = "") {
    const tls::TlsFiles files = certificates_.Files("controller", certificates_.OfServer());
    daemon_.emplace(folder_.path(), "",
                    std::vector<std::string>{"--listen", "127.0.0.1:0", "--tls-ca", files.ca, "--tls-cert",
                                             files.certificate, "--tls-key", files.key},
                    setup);
    JobClient::Until([&] { return Daemon::Log(folder_.path()).find("\"serving\"") != std::string::npos; });
    const std::string log = Daemon::Log(folder_.path());
    const size_t at = log.find("127.0.0.1:");
    address_ = log.substr(at, log.find('"', at) - at);
  }

  std::shared_ptr<grpc::ChannelCredentials> Of(Role role, const char* name) {
    const tls::Credential credential = certificates_.Of({role, name});
    return grpc::SslCredentials(
        {certificates_.authority().certificate, credential.key, credential.certificate});
  }

  platform::TemporaryFolder folder_;
  tls::Certificates certificates_;
  std::optional<Daemon> daemon_;
  std::string address_;
};

class FewDescriptorsTest : public TlsDaemonTest {
 protected:
  FewDescriptorsTest() : TlsDaemonTest("ulimit -n 256") {}
};

TEST_F(FewDescriptorsTest, APoolsCertificateDoesNotTakeThemAllAndUsersGetIn) {
  const auto pool = Of(Role::kWorker, "gpu-*");
  std::vector<std::unique_ptr<JobClient>> machines;
  grpc::Status last;
  while (last.ok() && machines.size() < 256) {
    machines.push_back(std::make_unique<JobClient>(address_, pool));
    grpc::ClientContext context;
    JobClient::SetDeadline(context);
    v1::ServerInfo info;
    last = machines.back()->stub().GetServerInfo(&context, {}, &info);
  }
  EXPECT_EQ(machines.size(), OpenConnections::MostOfAWorker(256) + 1);
  EXPECT_EQ(last.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(last.error_message(), HasSubstr("raise LimitNOFILE of the controller"));
  v1::Job job;
  EXPECT_TRUE(
      JobClient(address_, Of(Role::kUser, "alice")).Submit(JobClient::SpecOf("hers", 1), "", job).ok());
}

TEST_F(TlsDaemonTest, ItsAuditLogSaysWhoDidWhatAndNothingSecretIsInLogOrArguments) {
  JobClient alice(address_, Of(Role::kUser, "alice"));
  JobClient bob(address_, Of(Role::kUser, "bob"));
  v1::Job job;
  ASSERT_TRUE(alice.Submit(JobClient::SpecOf("hers", 1), "", job).ok());
  grpc::ClientContext context;
  JobClient::SetDeadline(context);
  v1::CancelRequest request;
  request.set_job("hers");
  EXPECT_FALSE(bob.stub().Cancel(&context, request, &job).ok());
  JobClient local(Daemon::Address(folder_.path()));
  grpc::ClientContext second;
  JobClient::SetDeadline(second);
  EXPECT_TRUE(local.stub().Cancel(&second, request, &job).ok()) << "who may open the socket";
  const std::string log = Daemon::Log(folder_.path());
  EXPECT_THAT(log,
              HasSubstr(R"("msg":"audit","component":"controller","who":"user/alice","from":"127.0.0.1:)"));
  EXPECT_THAT(log, HasSubstr(R"("method":"tandem.v1.Jobs/Submit","job":"hers","result":"OK")"));
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

// Connections over TCP that say `first` and nothing more.
class HalfOpen {
 public:
  HalfOpen(const std::string& address, int count, const std::string& first) {
    sockaddr_in name{};
    name.sin_family = AF_INET;
    name.sin_port = htons(static_cast<uint16_t>(std::stoi(address.substr(address.rfind(':') + 1))));
    name.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    for (int i = 0; i < count; ++i) {
      const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
      if (fd < 0 || connect(fd, reinterpret_cast<const sockaddr*>(&name), sizeof(name)) != 0) {
        ADD_FAILURE() << "connection " << i << ": " << strerror(errno);
        return;
      }
      fds_.push_back(fd);
      static_cast<void>(send(fd, first.data(), first.size(), MSG_NOSIGNAL));
    }
  }
  ~HalfOpen() {
    for (const int fd : fds_) {
      close(fd);
    }
  }
  int NumClosed() const {
    int closed = 0;
    for (const int fd : fds_) {
      char byte = 0;
      const ssize_t got = recv(fd, &byte, 1, MSG_DONTWAIT | MSG_PEEK);
      closed += got == 0 || (got < 0 && errno != EAGAIN) ? 1 : 0;
    }
    return closed;
  }

 private:
  std::vector<int> fds_;
};

TEST_F(TlsDaemonTest, TenThousandHalfOpenHandshakesAreShedWhileSessionsLiveOn) {
  rlimit limit{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
  limit.rlim_cur = limit.rlim_max;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
  const int each = std::min<int>(5000, static_cast<int>(limit.rlim_max / 3));
  SimulatedWorker worker("w", address_, {.hold = true, .credentials = Of(Role::kWorker, "w")});
  JobClient alice(address_, Of(Role::kUser, "alice"));
  v1::Job job;
  ASSERT_TRUE(alice.Submit(JobClient::SpecOf("held", 1), "", job).ok());
  JobClient::Until([&] { return worker.num_attempts() == 1; });
  const HalfOpen silent(address_, each, "");
  const HalfOpen begun(address_, each, std::string("\x16\x03\x01\x02\x00", 5));
  JobClient::Until([&] { return silent.NumClosed() + begun.NumClosed() >= 2 * each - 1100; });
  EXPECT_TRUE(alice.Submit(JobClient::SpecOf("meanwhile", 1), "", job).ok());
  const auto start = std::chrono::steady_clock::now();
  JobClient fresh(address_, Of(Role::kUser, "bob"));
  EXPECT_TRUE(fresh.Get("held", job).ok());
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(45))
      << "silent ones give way after ten seconds";
  worker.Release();
  ASSERT_TRUE(alice.Follow("held", job).ok());
  EXPECT_EQ(job.state(), v1::JOB_STATE_SUCCEEDED) << job.message();
  EXPECT_EQ(job.attempt(), 1) << "the worker was never away";
  EXPECT_THAT(Daemon::Log(folder_.path()), HasSubstr("clients were turned away"));
  EXPECT_EQ(daemon_->Stop(), 0);
}

TEST(ListenTest, WithoutTlsOtherMachinesAreNotListenedTo) {
  platform::TemporaryFolder folder;
  ServerOptions options;
  options.state_directory = folder.path();
  options.metrics_listen = "off";
  for (const char* listen :
       {"0.0.0.0:0", "[::]:0", "10.0.0.1:0", ":0", "127.evil.example:0", "example.org:0"}) {
    options.listen = {"127.0.0.1:0", listen};
    const absl::Status status =
        Server::Start(options, platform::SteadyClock(), platform::SystemRandom()).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << listen << ": " << status;
    EXPECT_THAT(
        std::string(status.message()),
        AllOf(HasSubstr("without TLS only this machine may reach the controller"), HasSubstr("--tls-ca")));
  }
}

TEST(ListenTest, AnAddressWithoutAPortIsRefusedWithAnExampleOfItsFlag) {
  platform::TemporaryFolder folder;
  ServerOptions options;
  options.state_directory = folder.path();
  const auto error = [&] {
    return Server::Start(options, platform::SteadyClock(), platform::SystemRandom()).status();
  };
  options.listen = {"localhost"};
  EXPECT_EQ(error(), absl::InvalidArgumentError(
                         "--listen: \"localhost\" is not an address; allowed: unix:/PATH or HOST:PORT with a "
                         "port from 0 to 65535, as in 127.0.0.1:7471"));
  options.listen = {"127.0.0.1:0"};
  options.metrics_listen = "127.0.0.1:94640";
  EXPECT_EQ(error(), absl::InvalidArgumentError(
                         "--metrics-listen: \"127.0.0.1:94640\" is not an address; allowed: HOST:PORT "
                         "with a port from 0 to 65535, as in 127.0.0.1:9464, or off"));
  options.metrics_listen = "off";
  options.tls_domain = "a b";
  EXPECT_THAT(std::string(error().message()),
              HasSubstr("--tls-domain: \"a b\" is not a DNS name; allowed: "));
}

}  // namespace
}  // namespace tandem::controller
