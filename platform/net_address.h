// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace tandem::platform {

// A place on a network as flags, files and messages write it: "HOST:PORT", where HOST is a name, an IPv4
// address, or an IPv6 address in brackets. All functions here are pure: no name is resolved, and nothing is
// opened.
struct HostPort {
  std::string host;  // without brackets; empty: every address of the machine
  int port = 0;      // 0 to 65535
  bool operator==(const HostPort&) const = default;
};

// "[fd00::1]:7471", "controller:7471", ":7471". nullopt if `text` is not an address, as "fd00::1:7471".
std::optional<HostPort> ReadHostPort(std::string_view text);

// Reads a target as gRPC takes it: also behind "dns:", "dns://AUTHORITY/", "ipv4:" or "ipv6:".
std::optional<HostPort> ReadTarget(std::string_view target);

// Writes an address, with brackets if it is of IPv6. ReadHostPort reads it.
std::string TextOf(const HostPort& address);

// The host of "HOST:PORT" or of a HOST alone, without brackets, as an HTTP request names it.
std::string HostOf(std::string_view text);

// True for an address that no other machine reaches ("127.0.0.1", "::1", "::ffff:127.0.0.1") and for the
// names that mean one everywhere ("localhost", "ip6-localhost").
bool IsLoopback(std::string_view host);

// True for "", "0.0.0.0" and "::".
bool IsEveryAddress(std::string_view host);

// What a flag takes as an address: HOST:PORT.
struct AddressForm {
  bool socket = false;         // unix:PATH too
  bool every_host = false;     // :PORT too
  int least_port = 1;          // 0: any port may be asked for
  const char* word = nullptr;  // this word too, such as "off"
  const char* example = "127.0.0.1:7471";
};

// "": `text` has the form. Else one line: what is wrong with it, and what is allowed.
std::string WhyNotAddress(std::string_view text, const AddressForm& form);

// The same of the path of a socket, without "unix:".
std::string WhyNotSocketPath(std::string_view path);

}  // namespace tandem::platform
