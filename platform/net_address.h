// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace tandem::platform {

// A network address, written "HOST:PORT" in flags, files and messages: HOST is a name, an IPv4 address, or an
// IPv6 address in brackets. All functions of this header are pure: they resolve no name and open nothing.
struct HostPort {
  std::string host;  // without brackets; empty: all addresses of the machine
  int port = 0;      // 0 to 65535
  bool operator==(const HostPort&) const = default;
};

// "[fd00::1]:7471", "controller:7471", ":7471". nullopt if `text` has another form, such as "fd00::1:7471".
std::optional<HostPort> ReadHostPort(std::string_view text);

// Reads a target of gRPC: HOST:PORT, also with the prefix "dns:", "dns://AUTHORITY/", "ipv4:" or "ipv6:".
std::optional<HostPort> ReadTarget(std::string_view target);

// The inverse of ReadHostPort: HOST:PORT, with brackets around an IPv6 address.
std::string TextOf(const HostPort& address);

// The host, without brackets, of a Host header of HTTP: "HOST:PORT" or HOST alone.
std::string HostOf(std::string_view text);

// True for loopback addresses ("127.0.0.1", "::1", "::ffff:127.0.0.1") and for the names that mean loopback
// on every machine ("localhost", "ip6-localhost").
bool IsLoopback(std::string_view host);

// True for "", "0.0.0.0" and "::".
bool IsEveryAddress(std::string_view host);

// The forms of an address that a flag accepts: always HOST:PORT, and others as these fields say.
struct AddressForm {
  bool socket = false;         // unix:PATH is allowed too
  bool every_host = false;     // :PORT is allowed too
  int least_port = 1;          // 0: the system may choose a port
  const char* word = nullptr;  // this word is allowed too, such as "off"
  const char* example = "127.0.0.1:7471";
};

// Returns "" if `text` has an accepted form, otherwise one line that says what is wrong and what is allowed.
std::string WhyNotAddress(std::string_view text, const AddressForm& form);

// The same for the path of a unix socket, given without "unix:".
std::string WhyNotSocketPath(std::string_view path);

}  // namespace tandem::platform
