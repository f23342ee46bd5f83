// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "absl/time/time.h"
#include "tls/fingerprints.h"
#include "tls/identity.h"

namespace tandem::controller {

// Who calls, and from where.
struct Caller {
  tls::Identity identity;
  std::string address;                            // "10.0.0.3:40112", or "unix"
  tls::Fingerprints fingerprints = nullptr;       // of its certificate; null: it showed none
  absl::Time not_after = absl::InfiniteFuture();  // of its certificate
  bool is_page = false;  // this process itself calls, for somebody who looks at its page
};

}  // namespace tandem::controller
