// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <string>

#include "absl/time/clock.h"
#include "tests/platform/temporary_folder.h"
#include "tls/authority.h"
#include "tls/identity.h"
#include "tls/tls_files.h"

namespace tandem::tls {

// A certificate authority, and a temporary folder for its certificate and those that it issues.
class Certificates {
 public:
  Certificates() {
    authority_ = Made(MakeAuthority("Test CA", absl::Now() - absl::Hours(1), absl::Now() + absl::Hours(240)));
    Write("ca.crt", authority_.certificate, 0644);
  }

  const Credential& authority() const { return authority_; }
  const std::string& folder() const { return folder_.path(); }

  Credential Of(const Identity& identity, absl::Duration from = -absl::Hours(1),
                absl::Duration to = absl::Hours(24)) const {
    return Made(Issue(authority_, {.common_name = ToText(identity),
                                   .uri = UriOf(identity, kDefaultDomain),
                                   .hosts = {},
                                   .not_before = absl::Now() + from,
                                   .not_after = absl::Now() + to}));
  }
  Credential OfServer(absl::Duration from = -absl::Hours(1), absl::Duration to = absl::Hours(24)) const {
    return Made(Issue(authority_, {.common_name = "controller",
                                   .uri = "",
                                   .hosts = {"localhost", "127.0.0.1"},
                                   .not_before = absl::Now() + from,
                                   .not_after = absl::Now() + to}));
  }

  // Writes the files NAME.crt and NAME.key.
  TlsFiles Files(const std::string& name, const Credential& credential) const {
    Write(name + ".crt", credential.certificate, 0644);
    Write(name + ".key", credential.key, 0600);
    return {.ca = folder() + "/ca.crt",
            .certificate = folder() + "/" + name + ".crt",
            .key = folder() + "/" + name + ".key",
            .server_name = ""};
  }

  void Write(const std::string& name, const std::string& text, mode_t mode) const {
    EXPECT_EQ(chmod(folder_.Write(name, text).c_str(), mode), 0);
  }

 private:
  static Credential Made(absl::StatusOr<Credential> made) {
    EXPECT_TRUE(made.ok()) << made.status();
    return made.ok() ? *std::move(made) : Credential();
  }

  platform::TemporaryFolder folder_;
  Credential authority_;
};

}  // namespace tandem::tls
