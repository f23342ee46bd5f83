// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

struct x509_st;

namespace tandem::tls {

// The SHA-256 of a certificate, 64 lower-case hex digits, and those of its twins. An ECDSA signature (r, s)
// is valid as (r, n - s) too, n being the order of the curve: a client can rewrite its certificate so that
// its authority still seems to have signed it. A list that names one of them means all of them.
//
// Nothing else of a certificate can be rewritten: OpenSSL encodes what is around the signed part again before
// it takes the digest, and RSA and EdDSA signatures have one valid form. The curve is that of the authority's
// key, which the certificate does not hold: there is a twin for each curve of OpenSSL that the signature
// fits.
//
// The first is its own. Shared, because each call has a copy.
using Fingerprints = std::shared_ptr<const std::vector<std::string>>;

// `certificate` stays the caller's.
Fingerprints FingerprintsOf(x509_st* certificate);

// The contents of a certificate, for decisions and for messages. Names come escaped: plain ASCII, one line.
struct Certificate {
  std::string subject;  // "CN=alice"
  std::string issuer;
  absl::Time not_before;
  absl::Time not_after;
  Fingerprints fingerprints;
  bool for_servers = false;  // its extended key usage, if it has one, allows it
  bool for_clients = false;
  std::vector<std::string> uris = {};   // of its alternative names, as they stand there
  std::vector<std::string> hosts = {};  // its DNS names and IP addresses
};

// `certificate` stays the caller's.
Certificate Describe(x509_st* certificate);

// The first certificate of a PEM text. InvalidArgument if there is none.
absl::StatusOr<Certificate> DescribePem(const std::string& pem);

// Takes the last error of OpenSSL in this thread, and clears its queue; "no reason given" if there is none.
std::string OpenSslReason();

}  // namespace tandem::tls
