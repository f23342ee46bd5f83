// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

namespace tandem::platform {

// True if `address`, "unix:/path" or "host:port", leads to this machine and no other machine reaches it.
inline bool IsLocalAddress(std::string_view address) {
  return address.starts_with("unix:") || address.starts_with("127.") || address.starts_with("localhost:") ||
         address.starts_with("[::1]:");
}

}  // namespace tandem::platform
