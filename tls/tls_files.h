// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "tls/certificate.h"

namespace tandem::tls {

// Files that say who one is, and whom one believes; PEM. All are given, or none: no TLS.
struct TlsFiles {
  std::string ca;           // certificates of those who sign the other side's
  std::string certificate;  // one's own, then those that lead to its CA, if there are any between
  std::string key;          // of the first of them
  // The name that the controller's certificate must have; empty: the host that is dialled. Servers ignore it.
  std::string server_name;
  // For a server, and optional: the file of a RevokedList.
  std::string revoked;

  bool given() const { return !ca.empty() || !certificate.empty() || !key.empty(); }
  bool operator==(const TlsFiles&) const = default;
};

// The largest PEM file that is read.
inline constexpr int64_t kMostPemBytes = 1 << 20;

// What is in them.
struct TlsTexts {
  std::string ca;
  std::string certificate;
  std::string key;
  Certificate own;
};

// InvalidArgument, in one line, where some of the three are named and not all.
absl::Status CheckNamed(const TlsFiles& files);

// What gave each of the three, for messages.
struct TlsFileSources {
  std::string ca = "--tls-ca";
  std::string certificate = "--tls-cert";
  std::string key = "--tls-key";
};

// Reads and checks them: all three are named and can be read, the key is the certificate's and not open to
// others of the machine. Errors are one line with its source, the file, what is wrong and what to do; they
// never hold anything of a key.
absl::StatusOr<TlsTexts> ReadTlsFiles(const TlsFiles& files, const TlsFileSources& sources = {});

// "expired on 2026-01-31T00:00:00+00:00", "is not valid before ..."; empty: it is valid.
std::string WhyNotValid(const Certificate& certificate, absl::Time now);

// ReadTlsFiles, and an error where the certificate is not valid at `now`: of a daemon that is about to use
// it.
absl::StatusOr<TlsTexts> ReadValidTlsFiles(const TlsFiles& files, absl::Time now);

}  // namespace tandem::tls
