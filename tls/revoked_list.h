// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "tls/certificate.h"
#include "tls/identity.h"

namespace tandem::tls {

// The identities and certificates that a server refuses although they are valid. The file has a line for
// each:
//
//   # the laptop that was stolen
//   user/bob
//   9F:86:D0:81:...                       SHA-256 fingerprint of one certificate, with or without colons
//   sha256 Fingerprint=9F:86:D0:81:...    as OpenSSL prints it
//
// A # begins a comment. An identity revokes all of its certificates. A fingerprint revokes one certificate
// and its twins (certificate.h); its owner can be issued another.
class RevokedList {
 public:
  // InvalidArgument, with `file` and the first line that has none of these forms.
  static absl::StatusOr<RevokedList> Parse(std::string_view text, const std::string& file);

  // Whether the list has the identity or any of the fingerprints. `fingerprints` may be null.
  bool Has(const Identity& identity, const Fingerprints& fingerprints) const;

  // The identities ("user/bob") and fingerprints of this list that `other` does not have.
  std::vector<std::string> NotIn(const RevokedList& other) const;

 private:
  std::set<std::string> identities_;  // "user/bob"
  std::set<std::string> fingerprints_;
};

}  // namespace tandem::tls
