// SPDX-License-Identifier: Apache-2.0
#include "platform/net_address.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/un.h>

#include <algorithm>
#include <array>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "platform/shown_text.h"

namespace tandem::platform {
namespace {

constexpr size_t kMostSocketPath = sizeof(sockaddr_un{}.sun_path) - 1;
constexpr std::string_view kSocketScheme = "unix:";
constexpr std::array kLoopbackNames = {"localhost", "localhost.localdomain", "ip6-localhost", "ip6-loopback"};

// A link-local address names its interface: "fe80::1%eth0".
std::optional<in6_addr> ReadIpv6(std::string_view host) {
  in6_addr address;
  return inet_pton(AF_INET6, std::string(host.substr(0, host.find('%'))).c_str(), &address) == 1
             ? std::optional(address)
             : std::nullopt;
}

bool IsName(std::string_view host) {
  return std::none_of(host.begin(), host.end(), [](unsigned char c) {
    return c <= ' ' || c == 0x7f || c == ':' || c == '/' || c == '[' || c == ']';
  });
}

std::optional<int> ReadPort(std::string_view text) {
  int port = 0;
  const bool is_one = !text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos &&
                      absl::SimpleAtoi(absl::string_view(text.data(), text.size()), &port) && port <= 65535;
  return is_one ? std::optional(port) : std::nullopt;
}

// Reads a host without brackets; nullopt if it is neither a name nor an address.
std::optional<std::string> ReadHost(std::string_view text) {
  if (text.size() > 2 && text.front() == '[' && text.back() == ']') {
    const std::string_view inner = text.substr(1, text.size() - 2);
    return ReadIpv6(inner).has_value() ? std::optional(std::string(inner)) : std::nullopt;
  }
  return IsName(text) ? std::optional(std::string(text)) : std::nullopt;
}

}  // namespace

std::optional<HostPort> ReadHostPort(std::string_view text) {
  const size_t colon = text.rfind(':');
  if (colon == std::string_view::npos) {
    return std::nullopt;
  }
  std::optional<std::string> host = ReadHost(text.substr(0, colon));
  const std::optional<int> port = ReadPort(text.substr(colon + 1));
  return host.has_value() && port.has_value() ? std::optional(HostPort{*std::move(host), *port})
                                              : std::nullopt;
}

std::optional<HostPort> ReadTarget(std::string_view target) {
  for (const std::string_view scheme : {"dns:", "ipv4:", "ipv6:"}) {
    if (!target.starts_with(scheme)) {
      continue;
    }
    target.remove_prefix(scheme.size());
    if (target.starts_with("//")) {
      const size_t slash = target.find('/', 2);
      target = slash == std::string_view::npos ? std::string_view() : target.substr(slash + 1);
    }
    break;
  }
  return ReadHostPort(target);
}

std::string TextOf(const HostPort& address) {
  const bool is_ipv6 = address.host.find(':') != std::string::npos;
  return absl::StrCat(is_ipv6 ? "[" : "", address.host, is_ipv6 ? "]" : "", ":", address.port);
}

std::string HostOf(std::string_view text) {
  if (std::optional<HostPort> address = ReadHostPort(text)) {
    return std::move(address->host);
  }
  return ReadHost(text).value_or(std::string(text));
}

bool IsLoopback(std::string_view host) {
  // "127.example.org" is a name, which may be that of any machine.
  if (host.starts_with("127.") && host.find_first_not_of("0123456789.") == std::string_view::npos) {
    return true;
  }
  if (const std::optional<in6_addr> v6 = ReadIpv6(host)) {
    return IN6_IS_ADDR_LOOPBACK(&*v6) || (IN6_IS_ADDR_V4MAPPED(&*v6) && v6->s6_addr[12] == 127);
  }
  const absl::string_view name(host.data(), host.size());
  return std::any_of(kLoopbackNames.begin(), kLoopbackNames.end(),
                     [&](const char* known) { return absl::EqualsIgnoreCase(name, known); });
}

bool IsEveryAddress(std::string_view host) { return host.empty() || host == "0.0.0.0" || host == "::"; }

std::string WhyNotSocketPath(std::string_view path) {
  if (!path.empty() && path.size() <= kMostSocketPath) {
    return "";
  }
  return absl::StrCat(
      "\"", Shown(absl::StrCat("unix:", std::string(path)), 200), "\": a socket's path has 1 to ",
      kMostSocketPath, " bytes, this one ", path.size(),
      path.empty() ? "; name one, as in unix:/run/tandem/socket" : "; choose a shorter folder");
}

std::string WhyNotAddress(std::string_view text, const AddressForm& form) {
  if (form.word != nullptr && text == form.word) {
    return "";
  }
  if (form.socket && text.starts_with(kSocketScheme)) {
    return WhyNotSocketPath(text.substr(kSocketScheme.size()));
  }
  const std::optional<HostPort> address = ReadHostPort(text);
  if (address.has_value() && (!address->host.empty() || form.every_host) &&
      address->port >= form.least_port) {
    return "";
  }
  return absl::StrCat(
      "\"", Shown(text, 200), "\" is not an address; allowed: ", form.socket ? "unix:/PATH or " : "",
      "HOST:PORT with a port from ", form.least_port, " to 65535, as in ", form.example,
      form.word != nullptr ? ", or " : "", form.word != nullptr ? form.word : "",
      std::count(text.begin(), text.end(), ':') > 1 && text.find('[') == std::string_view::npos
          ? "; an IPv6 address has brackets, as in [fd00::1]:7471"
          : "");
}

}  // namespace tandem::platform
