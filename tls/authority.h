// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace tandem::tls {

// A certificate and its private key, in PEM.
struct Credential {
  std::string certificate;
  std::string key;
};

// The contents of a certificate to be issued.
struct CertificateRequest {
  std::string common_name;         // at most 64 bytes, by X.509
  std::string uri;                 // a client's identity (identity.h); empty: none
  std::vector<std::string> hosts;  // a server's DNS names and IP addresses; empty: none
  absl::Time not_before;
  absl::Time not_after;
};

// Makes a certificate authority, for small clusters without one. It uses P-256 keys, SHA-256 and random
// serial numbers. Pure, except for OpenSSL's random numbers.
absl::StatusOr<Credential> MakeAuthority(const std::string& common_name, absl::Time not_before,
                                         absl::Time not_after);

// Issues a certificate signed by `authority`: for clients if the request has a URI, for servers if it has
// hosts. It expires no later than the authority's.
absl::StatusOr<Credential> Issue(const Credential& authority, const CertificateRequest& request);

}  // namespace tandem::tls
