// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "tls/fingerprints.h"

struct x509_st;

namespace tandem::tls {

// What a certificate says, for decisions and for messages. Names come escaped: plain ASCII, one line.
struct Certificate {
  std::string subject;  // "CN=alice"
  std::string issuer;
  absl::Time not_before;
  absl::Time not_after;
  Fingerprints fingerprints;
  bool for_servers = false;  // its extended key usage, where it has one, allows it
  bool for_clients = false;
  std::vector<std::string> uris = {};   // of its alternative names, as they stand there
  std::vector<std::string> hosts = {};  // its DNS names and IP addresses
};

// `certificate` stays the caller's.
Certificate Describe(x509_st* certificate);

// The first certificate of a PEM text. InvalidArgument where there is none.
absl::StatusOr<Certificate> DescribePem(const std::string& pem);

// What OpenSSL has last complained of in this thread; "no reason given" where it has not. Clears its queue.
std::string OpenSslReason();

}  // namespace tandem::tls
