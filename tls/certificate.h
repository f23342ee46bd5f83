// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

struct x509_st;

namespace tandem::tls {

// The SHA-256 of a certificate (64 lower-case hex digits), then the SHA-256 of each of its twins. If an ECDSA
// signature (r, s) is valid, so is (r, n - s), where n is the order of the curve. So the owner of a
// certificate can rewrite the signature and get a valid certificate with another SHA-256: a twin. A
// RevokedList that has one of these fingerprints refuses them all.
//
// Nothing else of a certificate can be rewritten: RSA and EdDSA signatures have one valid form, and OpenSSL
// encodes the part that is not signed anew before it computes the SHA-256. The curve is that of the
// authority's key, which is not in the certificate; so there is a twin for each curve of OpenSSL that fits
// the signature.
//
// Shared, because each call of a client has a copy.
using Fingerprints = std::shared_ptr<const std::vector<std::string>>;

// The caller keeps ownership of `certificate`.
Fingerprints FingerprintsOf(x509_st* certificate);

// The contents of a certificate, for decisions and messages. Names are escaped: plain ASCII in one line.
struct Certificate {
  std::string subject;  // "CN=alice"
  std::string issuer;
  absl::Time not_before;
  absl::Time not_after;
  Fingerprints fingerprints;
  bool for_servers = false;  // allowed by its extended key usage, or it has none
  bool for_clients = false;
  std::vector<std::string> uris = {};   // of its alternative names, unchanged
  std::vector<std::string> hosts = {};  // its DNS names and IP addresses
};

// The caller keeps ownership of `certificate`.
Certificate Describe(x509_st* certificate);

// The first certificate of a PEM text. InvalidArgument if there is none.
absl::StatusOr<Certificate> DescribePem(const std::string& pem);

// Returns the last error of OpenSSL in this thread, "no reason given" if there is none, and clears this
// thread's errors.
std::string OpenSslReason();

}  // namespace tandem::tls
