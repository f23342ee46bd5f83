// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <grpcpp/security/credentials.h>
#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <utility>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "tests/controller/service_fixture.h"
#include "tests/tls/certificates.h"

namespace tandem::controller {

// The kinds of callers. kOwner and kOtherUser are users; the jobs are kOwner's.
enum Who {
  kPlain,
  kNobody,
  kStranger,
  kExpired,
  kNotYet,
  kUnnamed,
  kWorker,
  kOwner,
  kOtherUser,
  kAdmin,
  kNumWho
};
inline constexpr std::array<const char*, kNumWho> kWhoNames = {
    "plaintext", "no certificate", "another authority", "expired", "not yet valid", "no identity",
    "worker",    "owner",          "another user",      "admin"};

inline std::shared_ptr<grpc::ChannelCredentials> CredentialsOf(const tls::Certificates& of,
                                                               const tls::Credential& credential) {
  return grpc::SslCredentials({of.authority().certificate, credential.key, credential.certificate});
}

// The controller's files, with a list of revoked certificates that names none yet.
inline tls::TlsFiles FilesWithList(const tls::Certificates& certificates) {
  tls::TlsFiles files = certificates.Files("controller", certificates.OfServer());
  files.revoked = certificates.folder() + "/revoked";
  certificates.Write("revoked", "", 0644);
  return files;
}

// A controller with TLS, and the credentials of every kind of caller.
class SecureServiceTest : public ServiceTest {
 protected:
  SecureServiceTest() : SecureServiceTest(std::make_unique<tls::Certificates>()) {}
  explicit SecureServiceTest(std::unique_ptr<tls::Certificates> certificates)
      : ServiceTest({}, FilesWithList(*certificates)), certificates_(std::move(certificates)) {}

  // Makes credentials with a new certificate.
  std::shared_ptr<grpc::ChannelCredentials> Of(tls::Role role, const char* name) const {
    return CredentialsOf(*certificates_, certificates_->Of({role, name}));
  }

  std::shared_ptr<grpc::ChannelCredentials> Credentials(Who who) const {
    const tls::Identity alice{tls::Role::kUser, "alice"};
    switch (who) {
      case kPlain:
        return grpc::InsecureChannelCredentials();
      case kNobody:
        return grpc::SslCredentials({certificates_->authority().certificate, "", ""});
      case kStranger:
        return CredentialsOf(*certificates_, strangers_.Of(alice));
      case kExpired:
        return CredentialsOf(*certificates_, certificates_->Of(alice, -absl::Hours(3), -absl::Hours(2)));
      case kNotYet:
        return CredentialsOf(*certificates_, certificates_->Of(alice, absl::Hours(2), absl::Hours(3)));
      case kUnnamed:
        return CredentialsOf(*certificates_, *tls::Issue(certificates_->authority(),
                                                         {.common_name = "admin/root",
                                                          .uri = "spiffe://other.example/admin/root",
                                                          .hosts = {},
                                                          .not_before = absl::Now() - absl::Hours(1),
                                                          .not_after = absl::Now() + absl::Hours(1)}));
      case kWorker:
        return Of(tls::Role::kWorker, "w");
      case kOwner:
        return Of(tls::Role::kUser, "alice");
      case kOtherUser:
        return Of(tls::Role::kUser, "bob");
      case kAdmin:
        return Of(tls::Role::kAdmin, "root");
      case kNumWho:
        break;
    }
    return nullptr;
  }

  std::unique_ptr<tls::Certificates> certificates_;
  const tls::Certificates strangers_;
};

}  // namespace tandem::controller
