// SPDX-License-Identifier: Apache-2.0
#include "worker/data_address.h"

#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>

#include <cerrno>
#include <memory>
#include <optional>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "platform/net_address.h"
#include "platform/regular_file.h"

namespace tandem::worker {
namespace {

// Returns an empty text if the address is neither IPv4 nor IPv6.
std::string NumericText(const sockaddr* address, socklen_t size) {
  char text[NI_MAXHOST];
  return getnameinfo(address, size, text, sizeof(text), nullptr, 0, NI_NUMERICHOST) == 0 ? text : "";
}

// Returns the local address of a datagram socket that is connected to `remote`. If there is no route,
// returns an empty text and sets errno.
std::string LocalAddress(const addrinfo& remote) {
  const platform::Descriptor descriptor(socket(remote.ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  sockaddr_storage local{};
  socklen_t size = sizeof(local);
  if (descriptor.get() < 0 || connect(descriptor.get(), remote.ai_addr, remote.ai_addrlen) != 0 ||
      getsockname(descriptor.get(), reinterpret_cast<sockaddr*>(&local), &size) != 0) {
    return "";
  }
  const std::string text = NumericText(reinterpret_cast<const sockaddr*>(&local), size);
  if (text.empty()) {
    errno = EAFNOSUPPORT;
  }
  return text;
}

// Returns the local address of a datagram socket to a numeric address; empty without a route.
std::string LocalAddressTowardNumeric(const char* address) {
  const addrinfo hints{.ai_flags = AI_NUMERICHOST, .ai_family = AF_UNSPEC, .ai_socktype = SOCK_DGRAM};
  addrinfo* found = nullptr;
  if (getaddrinfo(address, "9", &hints, &found) != 0) {
    return "";
  }
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(found, &freeaddrinfo);
  return LocalAddress(*found);
}

// Returns an address of this machine at which others can probably reach it: that of the default route,
// otherwise the first of an interface that is up. Empty if it has only loopback addresses.
std::string OutsideAddress() {
  for (const char* const far_away : {"192.0.2.1", "2001:db8::1"}) {  // for documentation: RFC 5737, RFC 3849
    if (std::string local = LocalAddressTowardNumeric(far_away);
        !local.empty() && !platform::IsLoopback(local)) {
      return local;
    }
  }
  ifaddrs* all = nullptr;
  if (getifaddrs(&all) != 0) {
    return "";
  }
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owner(all, &freeifaddrs);
  for (const ifaddrs* one = all; one != nullptr; one = one->ifa_next) {
    const int family = one->ifa_addr == nullptr ? AF_UNSPEC : one->ifa_addr->sa_family;
    if ((one->ifa_flags & IFF_UP) == 0 || (one->ifa_flags & IFF_LOOPBACK) != 0 ||
        (family != AF_INET && family != AF_INET6)) {
      continue;
    }
    const std::string text =
        NumericText(one->ifa_addr, family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6));
    if (!text.empty() && text.find('%') == std::string::npos) {  // not one that holds on one link
      return text;
    }
  }
  return "";
}

}  // namespace

absl::StatusOr<std::string> LocalAddressToward(const std::string& target) {
  if (absl::StartsWith(target, "unix:") || absl::StartsWith(target, "unix-abstract:")) {
    return "127.0.0.1";
  }
  const std::optional<platform::HostPort> remote = platform::ReadTarget(target);
  if (!remote.has_value() || remote->host.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("the address ", target, " does not show which address of this machine reaches it"));
  }
  const addrinfo hints{.ai_family = AF_UNSPEC, .ai_socktype = SOCK_DGRAM};
  addrinfo* found = nullptr;
  if (const int error =
          getaddrinfo(remote->host.c_str(), std::to_string(remote->port).c_str(), &hints, &found);
      error != 0) {
    return absl::UnavailableError(absl::StrCat(target, ": ", gai_strerror(error)));
  }
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(found, &freeaddrinfo);
  for (const addrinfo* candidate = found; candidate != nullptr; candidate = candidate->ai_next) {
    const std::string local = LocalAddress(*candidate);
    if (local.empty()) {
      continue;
    }
    const bool is_own_name = platform::IsLoopback(local) && !platform::IsLoopback(remote->host);
    const std::string outside = is_own_name ? OutsideAddress() : "";
    return outside.empty() ? local : outside;
  }
  return absl::UnavailableError(
      absl::StrCat("no route from this machine to ", target, ": ", strerror(errno)));
}

absl::Status CheckDataAddress(const std::string& address) {
  const auto refuse = [&](const char* why) {
    return absl::InvalidArgumentError(
        absl::StrCat("\"", address, "\" is not an address of this machine: ", why));
  };
  const addrinfo hints{.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
  addrinfo* found = nullptr;
  if (const int error = getaddrinfo(address.c_str(), nullptr, &hints, &found); error != 0) {
    return refuse(gai_strerror(error));
  }
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(found, &freeaddrinfo);
  int why = 0;
  for (const addrinfo* candidate = found; candidate != nullptr; candidate = candidate->ai_next) {
    const platform::Descriptor descriptor(socket(candidate->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (descriptor.get() >= 0 && bind(descriptor.get(), candidate->ai_addr, candidate->ai_addrlen) == 0) {
      return absl::OkStatus();
    }
    why = errno;
  }
  return refuse(strerror(why));
}

}  // namespace tandem::worker
