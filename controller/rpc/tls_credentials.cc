// SPDX-License-Identifier: Apache-2.0
#include "controller/rpc/tls_credentials.h"

#include <grpcpp/security/tls_certificate_provider.h>
#include <grpcpp/security/tls_certificate_verifier.h>
#include <grpcpp/security/tls_credentials_options.h>

#include <functional>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "platform/log.h"
#include "platform/status_macros.h"

namespace tandem::controller {
namespace {

constexpr absl::Duration kLogEvery = absl::Seconds(10);
constexpr unsigned kLookEverySeconds = 1;  // whether the files have changed

class ClientVerifier : public grpc::experimental::ExternalCertificateVerifier {
 public:
  ClientVerifier(std::shared_ptr<const tls::ServerTls> tls, Admits admits,
                 std::shared_ptr<TurnedAway> turned_away)
      : tls_(std::move(tls)), admits_(admits), turned_away_(std::move(turned_away)) {}

  bool Verify(grpc::experimental::TlsCustomVerificationCheckRequest* request,
              std::function<void(grpc::Status)> /*later*/, grpc::Status* status) override {
    const grpc::string_ref shown = request->peer_cert();
    const absl::Status admitted = Admit(std::string(shown.data(), shown.size()));
    if (!admitted.ok()) {
      turned_away_->Add(std::string(admitted.message()));
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
  const std::shared_ptr<TurnedAway> turned_away_;
};

}  // namespace

void TurnedAway::Add(const std::string& why) {
  const absl::MutexLock lock(&mu_);
  ++clients_;
  why_ = why;
}

void TurnedAway::LogRefusals(absl::Time now) {
  const absl::MutexLock lock(&mu_);
  if (clients_ == 0 || now - logged_ < kLogEvery) {
    return;
  }
  logged_ = now;
  platform::Log(platform::LogLevel::kWarning, "clients were turned away",
                {{"clients", absl::StrCat(std::exchange(clients_, 0))}, {"last", why_}});
}

std::shared_ptr<grpc::ServerCredentials> TlsCredentials(std::shared_ptr<const tls::ServerTls> tls,
                                                        Admits admits,
                                                        std::shared_ptr<TurnedAway> turned_away) {
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

}  // namespace tandem::controller
