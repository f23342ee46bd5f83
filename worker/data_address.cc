// SPDX-License-Identifier: Apache-2.0
#include "worker/data_address.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <string.h>
#include <sys/socket.h>

#include <cerrno>
#include <memory>
#include <string_view>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "platform/regular_file.h"

namespace tandem::worker {
namespace {

struct HostPort {
  std::string host;
  std::string port;
};

// "host:port", "[2001:db8::1]:port", "2001:db8::1" (gRPC's default port then); empty host: not of this form.
HostPort SplitHostPort(std::string_view text) {
  constexpr char kDefaultPort[] = "443";
  const auto port_or_default = [&](std::string_view rest) {
    return rest.empty() ? std::string(kDefaultPort) : std::string(rest.substr(1));
  };
  if (!text.empty() && text.front() == '[') {
    const size_t end = text.find(']');
    if (end == std::string_view::npos) {
      return {};
    }
    const std::string_view rest = text.substr(end + 1);
    if (!rest.empty() && rest.front() != ':') {
      return {};
    }
    return {std::string(text.substr(1, end - 1)), port_or_default(rest)};
  }
  const size_t colon = text.find(':');
  if (colon == std::string_view::npos || text.find(':', colon + 1) != std::string_view::npos) {
    in6_addr v6;
    std::string host(text);
    if (colon != std::string_view::npos && inet_pton(AF_INET6, host.c_str(), &v6) != 1) {
      return {};
    }
    return {std::move(host), kDefaultPort};
  }
  return {std::string(text.substr(0, colon)), port_or_default(text.substr(colon))};
}

// The local address of a datagram socket that is connected to `remote`; empty, with errno, without a route.
std::string LocalAddress(const addrinfo& remote) {
  const platform::Descriptor descriptor(socket(remote.ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  sockaddr_storage local{};
  socklen_t size = sizeof(local);
  if (descriptor.get() < 0 || connect(descriptor.get(), remote.ai_addr, remote.ai_addrlen) != 0 ||
      getsockname(descriptor.get(), reinterpret_cast<sockaddr*>(&local), &size) != 0) {
    return "";
  }
  char text[NI_MAXHOST];
  if (getnameinfo(reinterpret_cast<const sockaddr*>(&local), size, text, sizeof(text), nullptr, 0,
                  NI_NUMERICHOST) != 0) {
    errno = EAFNOSUPPORT;
    return "";
  }
  return text;
}

}  // namespace

absl::StatusOr<std::string> LocalAddressToward(const std::string& target) {
  std::string_view rest = target;
  if (absl::StartsWith(target, "unix:") || absl::StartsWith(target, "unix-abstract:")) {
    return "127.0.0.1";
  }
  for (const std::string_view scheme : {"dns:", "ipv4:", "ipv6:"}) {
    if (!absl::StartsWith(target, absl::string_view(scheme.data(), scheme.size()))) {
      continue;
    }
    rest.remove_prefix(scheme.size());
    if (rest.starts_with("//")) {  // "dns://authority/host:port"
      const size_t slash = rest.find('/', 2);
      rest = slash == std::string_view::npos ? std::string_view() : rest.substr(slash + 1);
    }
    break;
  }
  const HostPort remote = SplitHostPort(rest);
  if (remote.host.empty() || rest.find('/') != std::string_view::npos) {
    return absl::InvalidArgumentError(
        absl::StrCat("the address ", target, " does not show which address of this machine reaches it"));
  }
  const addrinfo hints{.ai_family = AF_UNSPEC, .ai_socktype = SOCK_DGRAM};
  addrinfo* found = nullptr;
  if (const int error = getaddrinfo(remote.host.c_str(), remote.port.c_str(), &hints, &found); error != 0) {
    return absl::UnavailableError(absl::StrCat(target, ": ", gai_strerror(error)));
  }
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(found, &freeaddrinfo);
  for (const addrinfo* candidate = found; candidate != nullptr; candidate = candidate->ai_next) {
    if (std::string local = LocalAddress(*candidate); !local.empty()) {
      return local;
    }
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
