// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "tls/certificate.h"

namespace tandem::tls {

// TlsFiles are read and checked into TlsTexts; ServerTls and ClientTls keep them up to date for gRPC. Of a
// peer, a Certificate gives the Identity (role and name) and the Fingerprints, by which a RevokedList refuses
// it. authority.h makes certificates for clusters without an authority of their own (`tandem certs`).

// The PEM files by which a process identifies itself and its peers. Either all are given, or none, for no
// TLS.
struct TlsFiles {
  std::string ca;           // certificates of the authorities of the other side
  std::string certificate;  // of this process, then any between it and its CA
  std::string key;          // of the first certificate
  // The name that the controller's certificate must have; empty: the host that is dialled. Servers ignore it.
  std::string server_name;
  // The file of a RevokedList; optional, and only for servers.
  std::string revoked;

  bool given() const { return !ca.empty() || !certificate.empty() || !key.empty(); }
  bool operator==(const TlsFiles&) const = default;
};

// The largest PEM file that is read.
inline constexpr int64_t kMostPemBytes = 1 << 20;

// The contents of the files.
struct TlsTexts {
  std::string ca;
  std::string certificate;
  std::string key;
  Certificate own;
};

// InvalidArgument, in one line, if some but not all of the three are named.
absl::Status CheckNamed(const TlsFiles& files);

// What names the files on a command line.
inline TlsFiles TlsFlags() { return {.ca = "--tls-ca", .certificate = "--tls-cert", .key = "--tls-key"}; }

// Reads and checks them: all three are named and can be read, the key is the certificate's and not open to
// others of the machine. Errors are one line with its source (the flag or field that named the file), the
// file, what is wrong and what to do; they never hold anything of a key.
absl::StatusOr<TlsTexts> ReadTlsFiles(const TlsFiles& files, const TlsFiles& sources = TlsFlags());

// "expired on 2026-01-31T00:00:00+00:00", "is not valid before ..."; empty if it is valid.
std::string WhyNotValid(const Certificate& certificate, absl::Time now);

// ReadTlsFiles for a daemon that uses the files at once: also an error if the certificate is not valid at
// `now`.
absl::StatusOr<TlsTexts> ReadValidTlsFiles(const TlsFiles& files, absl::Time now);

}  // namespace tandem::tls
