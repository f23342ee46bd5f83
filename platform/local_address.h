// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

namespace tandem::platform {

// True if `address`, "unix:/path" or "host:port", leads to this machine and no other machine reaches it.
inline bool IsLocalAddress(std::string_view address) {
  // "127.example.org" is a name, and may be anywhere.
  const std::string_view host = address.substr(0, address.rfind(':'));
  return address.starts_with("unix:") || address.starts_with("localhost:") || address.starts_with("[::1]:") ||
         (host.starts_with("127.") && host.find_first_not_of("0123456789.") == std::string_view::npos);
}

}  // namespace tandem::platform
