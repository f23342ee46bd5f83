// SPDX-License-Identifier: Apache-2.0
#include "config/address.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/un.h>

#include <algorithm>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "platform/shown_text.h"

namespace tandem::config {
namespace {

constexpr size_t kMostSocketPath = sizeof(sockaddr_un{}.sun_path) - 1;

bool IsHost(std::string_view host, bool ipv6) {
  if (ipv6 && host.starts_with('[') && host.ends_with(']')) {
    in6_addr address;
    const std::string inner(host.substr(1, host.size() - 2));
    // "fe80::1%eth0": an address that holds on one link says which.
    return inet_pton(AF_INET6, inner.substr(0, inner.find('%')).c_str(), &address) == 1;
  }
  return std::none_of(host.begin(), host.end(), [](unsigned char c) {
    return c <= ' ' || c == 0x7f || c == ':' || c == '/' || c == '[' || c == ']';
  });
}

bool IsPort(std::string_view text, int least) {
  int port = 0;
  return !text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos &&
         absl::SimpleAtoi(absl::string_view(text.data(), text.size()), &port) && port >= least &&
         port <= 65535;
}

}  // namespace

std::string WhyNotSocketPath(std::string_view path) {
  if (!path.empty() && path.size() <= kMostSocketPath) {
    return "";
  }
  return absl::StrCat(
      "\"", platform::Shown(absl::StrCat("unix:", std::string(path)), 200), "\": a socket's path has 1 to ",
      kMostSocketPath, " bytes, this one ", path.size(),
      path.empty() ? "; name one, as in unix:/run/tandem/socket" : "; choose a shorter folder");
}

std::string WhyNotAddress(std::string_view text, const AddressForm& form) {
  if (form.word != nullptr && text == form.word) {
    return "";
  }
  constexpr std::string_view kScheme = "unix:";
  if (form.socket && text.starts_with(kScheme)) {
    return WhyNotSocketPath(text.substr(kScheme.size()));
  }
  const size_t colon = text.rfind(':');
  if (colon != std::string_view::npos && (colon > 0 || form.every_host) &&
      IsHost(text.substr(0, colon), form.ipv6) && IsPort(text.substr(colon + 1), form.least_port)) {
    return "";
  }
  return absl::StrCat("\"", platform::Shown(text, 200),
                      "\" is not an address; allowed: ", form.socket ? "unix:/PATH or " : "",
                      form.ipv6 ? "HOST:PORT" : "HOST:PORT, IPv4 alone,", " with a port from ",
                      form.least_port, " to 65535, as in ", form.example, form.word != nullptr ? ", or " : "",
                      form.word != nullptr ? form.word : "");
}

}  // namespace tandem::config
