// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "tls/authority.h"

namespace tandem::cli {

// A folder of certificates and keys, NAME.crt (mode 0644) and NAME.key (0600), that of the authority under
// the name "ca". Errors are one line with the path.
class CredentialFolder {
 public:
  // Opens the folder; if it does not exist and `make` is set, makes it with mode 0700.
  static absl::StatusOr<CredentialFolder> Open(const std::string& folder, bool make);

  std::string CertificateFile(const std::string& name) const { return folder_ + "/" + name + ".crt"; }
  std::string KeyFile(const std::string& name) const { return folder_ + "/" + name + ".key"; }

  // Returns AlreadyExists if a file of one of the names exists. remedy: what the user can do then.
  absl::Status CheckFree(const std::vector<std::string>& names, absl::string_view remedy) const;

  // Adds both files. AlreadyExists if one of them exists; nothing is replaced.
  absl::Status Add(const std::string& name, const tls::Credential& credential) const;

  // Replaces each file by rename(2), so that a reader finds the old one or the new one. Both must exist.
  absl::Status Replace(const std::string& name, const tls::Credential& credential) const;

  absl::StatusOr<tls::Credential> Read(const std::string& name) const;

 private:
  explicit CredentialFolder(std::string folder) : folder_(std::move(folder)) {}

  std::string folder_;
};

}  // namespace tandem::cli
