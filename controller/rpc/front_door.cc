// SPDX-License-Identifier: Apache-2.0
#include "controller/rpc/front_door.h"

#include <grpcpp/resource_quota.h>
#include <grpcpp/security/tls_certificate_provider.h>
#include <grpcpp/security/tls_certificate_verifier.h>
#include <unistd.h>

#include <functional>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "platform/clock.h"
#include "platform/log.h"
#include "platform/status_macros.h"

namespace tandem::controller {
namespace {

constexpr int kMostMessageBytes = 4 << 20;  // gRPC's own default; pages and batches are smaller
constexpr int kMostCallsOfAConnection = 1000;
constexpr int kMostThreadsOfStreams = 64;  // more streams of reflection are refused
constexpr int kHandshakeMs = 10'000;

void SetArguments(grpc::ServerBuilder& builder, const std::string& name, size_t most_bytes) {
  builder.AddChannelArgument("grpc.server_handshake_timeout_ms", kHandshakeMs);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, 10'000);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 5'000);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  // Clients may ping once a second; by default their streams would be ended after four pings.
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 500);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PING_STRIKES, 0);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, kMostCallsOfAConnection);
  // Only a stream of reflection occupies a thread. One queue serves them all; by default each processor
  // would have a queue, and each queue a thread.
  builder.SetSyncServerOption(grpc::ServerBuilder::SyncServerOption::NUM_CQS, 1);
  grpc::ResourceQuota quota(name);
  quota.SetMaxThreads(kMostThreadsOfStreams);
  if (most_bytes > 0) {
    quota.Resize(most_bytes);
  }
  builder.SetResourceQuota(quota);
  builder.SetMaxReceiveMessageSize(kMostMessageBytes);
  // gRPC decompresses before it looks at the size: 500 kB can become 512 MB.
  for (const grpc_compression_algorithm algorithm : {GRPC_COMPRESS_DEFLATE, GRPC_COMPRESS_GZIP}) {
    builder.SetCompressionAlgorithmSupportStatus(algorithm, false);
  }
}

constexpr unsigned kLookEverySeconds = 1;  // for changed files

void LogRefusal(platform::RareLog& turned_away, const absl::Status& why) {
  if (const int64_t clients = turned_away.Count(platform::SteadyClock().Now()); clients > 0) {
    platform::Log(platform::LogLevel::kWarning, "clients were turned away",
                  {{"clients", absl::StrCat(clients)}, {"last", std::string(why.message())}});
  }
}

class ClientVerifier : public grpc::experimental::ExternalCertificateVerifier {
 public:
  ClientVerifier(std::shared_ptr<const tls::ServerTls> tls, Admits admits,
                 std::shared_ptr<platform::RareLog> turned_away)
      : tls_(std::move(tls)), admits_(admits), turned_away_(std::move(turned_away)) {}

  bool Verify(grpc::experimental::TlsCustomVerificationCheckRequest* request,
              std::function<void(grpc::Status)> /*later*/, grpc::Status* status) override {
    const grpc::string_ref shown = request->peer_cert();
    const absl::Status admitted = Admit(std::string(shown.data(), shown.size()));
    if (!admitted.ok()) {
      LogRefusal(*turned_away_, admitted);
    }
    *status = {static_cast<grpc::StatusCode>(admitted.code()), std::string(admitted.message())};
    return true;
  }
  void Cancel(grpc::experimental::TlsCustomVerificationCheckRequest* /*request*/) override {}

 private:
  absl::Status Admit(const std::string& certificate) const {
    TANDEM_ASSIGN_OR_RETURN(const tls::Peer peer, tls_->WhoIs(certificate));
    // gRPC has checked the dates, unless the client resumes a session.
    const absl::Time now = absl::Now();
    const std::string who = tls::ToText(peer.identity);
    if (now < peer.not_before || peer.not_after < now) {
      return absl::UnauthenticatedError(absl::StrCat("the certificate of ", who, " is not valid now"));
    }
    const bool is_worker = peer.identity.role == tls::Role::kWorker;
    if (is_worker ? !admits_.workers : !admits_.users) {
      return absl::UnauthenticatedError(absl::StrCat(
          who, " may not connect to this address; ",
          is_worker ? "workers connect to --worker-listen" : "users and admins connect to --listen"));
    }
    return absl::OkStatus();
  }

  const std::shared_ptr<const tls::ServerTls> tls_;  // a handshake may outlive the server
  const Admits admits_;
  const std::shared_ptr<platform::RareLog> turned_away_;
};

// Makes gRPC's credentials for TLS 1.2 and 1.3 from the files that `tls` has published. Every client must
// present a certificate; a client that is not admitted is refused in the handshake, before any HTTP/2. The
// client does not learn the reason, but the log has it.
std::shared_ptr<grpc::ServerCredentials> TlsCredentials(std::shared_ptr<const tls::ServerTls> tls,
                                                        Admits admits,
                                                        std::shared_ptr<platform::RareLog> turned_away) {
  namespace experimental = grpc::experimental;
  const std::string folder = tls->folder();
  const auto file = [&folder](const char* name) { return absl::StrCat(folder, "/", name); };
  experimental::TlsServerCredentialsOptions options(
      std::make_shared<experimental::FileWatcherCertificateProvider>(
          file(tls::ServerTls::kKey), file(tls::ServerTls::kCertificate), file(tls::ServerTls::kCa),
          kLookEverySeconds));
  options.watch_root_certs();
  options.watch_identity_key_cert_pairs();
  options.set_cert_request_type(GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
  options.set_certificate_verifier(experimental::ExternalCertificateVerifier::Create<ClientVerifier>(
      std::move(tls), admits, std::move(turned_away)));
  return experimental::TlsServerCredentials(options);
}

}  // namespace

absl::StatusOr<std::unique_ptr<FrontDoor>> FrontDoor::Open(const Options& options,
                                                           OpenConnections& connections,
                                                           std::shared_ptr<platform::RareLog> turned_away) {
  std::unique_ptr<FrontDoor> door(new FrontDoor(options, connections, std::move(turned_away)));
  for (const std::string& address : options.listen) {
    TANDEM_ASSIGN_OR_RETURN(std::unique_ptr<Listener> listener, Listener::Open(address, options.flag));
    door->addresses_.push_back(listener->address());
    door->listeners_.push_back(std::move(listener));
  }
  return door;
}

bool FrontDoor::SpeaksTls(const std::string& address) const {
  return options_.tls != nullptr && !absl::StartsWith(address, "unix:");
}

absl::Status FrontDoor::Start(const std::vector<grpc::Service*>& services, const CallRecords& records) {
  grpc::ServerBuilder builder;
  SetArguments(builder, options_.flag, options_.most_bytes);
  for (const std::string& address : addresses_) {
    acceptors_.push_back(builder.experimental().AddExternalConnectionAcceptor(
        grpc::ServerBuilder::experimental_type::ExternalConnectionType::FROM_FD,
        SpeaksTls(address) ? TlsCredentials(options_.tls, options_.admits, turned_away_)
                           : grpc::InsecureServerCredentials()));
  }
  for (grpc::Service* service : services) {
    builder.RegisterService(service);
  }
  std::vector<std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface>> interceptors;
  interceptors.push_back(InterceptCalls(records));
  builder.experimental().SetInterceptorCreators(std::move(interceptors));
  server_ = builder.BuildAndStart();
  return server_ != nullptr ? absl::OkStatus() : absl::InternalError("the gRPC server did not start");
}

void FrontDoor::Accept() {
  for (size_t i = 0; i < listeners_.size(); ++i) {
    listeners_[i]->Start([this, speaks_tls = SpeaksTls(addresses_[i]), &acceptor = *acceptors_[i]](int fd) {
      Accepted(fd, speaks_tls, acceptor);
    });
  }
}

void FrontDoor::Accepted(int fd, bool speaks_tls, Acceptor& acceptor) {
  if (speaks_tls) {
    if (const absl::Status added = connections_.Add(fd); !added.ok()) {
      LogRefusal(*turned_away_, added);
      close(fd);
      return;
    }
  }
  Acceptor::NewConnectionParameters connection;
  connection.fd = fd;
  acceptor.HandleNewConnection(&connection);
}

}  // namespace tandem::controller
