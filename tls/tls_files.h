// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "tls/certificate.h"

namespace tandem::tls {

// This folder: ReadTlsFiles reads and checks the PEM files (TlsFiles) of a process into TlsTexts; ServerTls
// and ClientTls load new files for gRPC. A peer's Certificate has an Identity (role and name) and
// Fingerprints, by which a RevokedList can refuse it. authority.h issues certificates for clusters without an
// authority (`tandem certs`).

// The PEM files by which a process identifies itself and its peers. The first three are given together, or
// none of them: then there is no TLS.
struct TlsFiles {
  std::string ca;           // certificates of the authorities that signed the peers' certificates
  std::string certificate;  // the certificate of this process, then any intermediate ones
  std::string key;          // the private key of the first certificate
  // The name that the controller's certificate must have; empty: the host of its address. Servers ignore this
  // field.
  std::string server_name;
  // The file of the RevokedList: optional, and only for servers.
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

// InvalidArgument, in one line, if only one or two of ca, certificate and key are given.
absl::Status CheckNamed(const TlsFiles& files);

// The flags that set the files, for messages.
inline TlsFiles TlsFlags() { return {.ca = "--tls-ca", .certificate = "--tls-cert", .key = "--tls-key"}; }

// Reads ca, certificate and key and checks that they are given and readable, that the key belongs to the
// certificate, and that other users of the machine cannot read the key. An error is one line with the source
// (the flag or field with the file's path), the file, what is wrong and what to do; it never quotes a key.
absl::StatusOr<TlsTexts> ReadTlsFiles(const TlsFiles& files, const TlsFiles& sources = TlsFlags());

// "expired on 2026-01-31T00:00:00+00:00", "is not valid before ..."; empty if it is valid.
std::string WhyNotValid(const Certificate& certificate, absl::Time now);

// As ReadTlsFiles, but also returns an error if the certificate is not valid at `now`, for a daemon that uses
// it at once.
absl::StatusOr<TlsTexts> ReadValidTlsFiles(const TlsFiles& files, absl::Time now);

}  // namespace tandem::tls
