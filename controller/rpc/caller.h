// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "absl/time/time.h"
#include "tls/certificate.h"
#include "tls/identity.h"

namespace tandem::controller {

// The identity of a caller, and its address.
struct Caller {
  tls::Identity identity;
  std::string address;                            // "10.0.0.3:40112", or "unix"
  tls::Fingerprints fingerprints = nullptr;       // of its certificate; null if it has none
  absl::Time not_after = absl::InfiniteFuture();  // of its certificate
  bool is_page = false;  // this process makes the call for a browser that shows its page
};

}  // namespace tandem::controller
