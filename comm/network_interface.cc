// SPDX-License-Identifier: Apache-2.0
#include "comm/network_interface.h"

#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>

#include <cstring>
#include <memory>

namespace tandem::comm {
namespace {

// Compares the addresses without their ports.
bool SameAddress(const sockaddr* a, const sockaddr* b) {
  if (a == nullptr || b == nullptr || a->sa_family != b->sa_family) {
    return false;
  }
  if (a->sa_family == AF_INET) {
    return reinterpret_cast<const sockaddr_in*>(a)->sin_addr.s_addr ==
           reinterpret_cast<const sockaddr_in*>(b)->sin_addr.s_addr;
  }
  return a->sa_family == AF_INET6 &&
         std::memcmp(&reinterpret_cast<const sockaddr_in6*>(a)->sin6_addr,
                     &reinterpret_cast<const sockaddr_in6*>(b)->sin6_addr, sizeof(in6_addr)) == 0;
}

}  // namespace

std::string InterfaceOf(const std::string& address) {
  const addrinfo hints{.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
  addrinfo* found = nullptr;
  if (getaddrinfo(address.c_str(), nullptr, &hints, &found) != 0) {
    return "";
  }
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> addresses(found, &freeaddrinfo);
  ifaddrs* listed = nullptr;
  if (getifaddrs(&listed) != 0) {
    return "";
  }
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> interfaces(listed, &freeifaddrs);
  for (const addrinfo* wanted = found; wanted != nullptr; wanted = wanted->ai_next) {
    for (const ifaddrs* each = listed; each != nullptr; each = each->ifa_next) {
      if (SameAddress(wanted->ai_addr, each->ifa_addr)) {
        return each->ifa_name;
      }
    }
  }
  return "";
}

}  // namespace tandem::comm
