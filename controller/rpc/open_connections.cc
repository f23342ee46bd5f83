// SPDX-License-Identifier: Apache-2.0
#include "controller/rpc/open_connections.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "platform/log.h"
#include "platform/net_address.h"

namespace tandem::controller {
namespace {

constexpr absl::Duration kLinger = absl::Seconds(5);

// Returns the inode of the socket that `fd` is now; 0 if it is closed.
ino_t SocketOf(int fd) {
  struct stat info {};
  return fstat(fd, &info) == 0 ? info.st_ino : 0;
}

// Ends the connection for both sides, unless `fd` has become something else: a duplicate of `fd` is checked
// and shut down. gRPC then reads the end, and closes its own descriptor.
void End(int fd, ino_t socket) {
  const int same = fcntl(fd, F_DUPFD_CLOEXEC, 0);
  if (same < 0) {
    return;  // no descriptor is free: the next sweep tries again
  }
  if (SocketOf(same) == socket) {
    shutdown(same, SHUT_RDWR);
  }
  close(same);
}

}  // namespace

std::string AddressOfSocket(int fd) {
  sockaddr_storage name{};
  socklen_t size = sizeof(name);
  char host[INET6_ADDRSTRLEN] = "";
  if (getpeername(fd, reinterpret_cast<sockaddr*>(&name), &size) != 0) {
    return "unix";
  }
  if (name.ss_family == AF_INET) {
    const auto& v4 = reinterpret_cast<const sockaddr_in&>(name);
    inet_ntop(AF_INET, &v4.sin_addr, host, sizeof(host));
    return absl::StrCat(host, ":", ntohs(v4.sin_port));
  }
  if (name.ss_family == AF_INET6) {
    const auto& v6 = reinterpret_cast<const sockaddr_in6&>(name);
    inet_ntop(AF_INET6, &v6.sin6_addr, host, sizeof(host));
    // An address of IPv4 that connected to a socket of IPv6 is written as IPv4, as gRPC does.
    absl::string_view text = host;
    return IN6_IS_ADDR_V4MAPPED(&v6.sin6_addr) && absl::ConsumePrefix(&text, "::ffff:")
               ? absl::StrCat(text, ":", ntohs(v6.sin6_port))
               : absl::StrCat("[", text, "]:", ntohs(v6.sin6_port));
  }
  return "unix";
}

size_t OpenConnections::MostOfAWorker(uint64_t descriptors) {
  return std::max<size_t>(1, descriptors * 2 / 5);
}

OpenConnections::ByAddress::iterator OpenConnections::Forget(ByAddress::iterator it) {
  if (it->second.caller.has_value()) {
    nums_.Remove(tls::ToText(it->second.caller->identity));
  } else {
    --strangers_;
    strangers_of_.Remove(it->second.host);
  }
  return connections_.erase(it);
}

void OpenConnections::ForgetEnded(ByAddress::iterator kept) {
  for (auto it = connections_.begin(); it != connections_.end();) {
    it = it == kept || SocketOf(it->second.fd) == it->second.socket ? std::next(it) : Forget(it);
  }
}

bool OpenConnections::HasRoomFor(const std::string& host) const {
  return strangers_ < limits_.most_strangers && strangers_of_.NumOf(host) < limits_.most_strangers_of_address;
}

absl::Status OpenConnections::Add(int fd) {
  const std::string address = AddressOfSocket(fd);
  const std::string host = platform::HostOf(address);
  const absl::MutexLock lock(&mu_);
  if (!HasRoomFor(host)) {
    ForgetEnded(connections_.end());
  }
  if (!HasRoomFor(host)) {
    return absl::ResourceExhaustedError(
        strangers_ >= limits_.most_strangers
            ? absl::StrCat(limits_.most_strangers, " others had not called yet (", address, ")")
            : absl::StrCat(limits_.most_strangers_of_address, " others from its machine had not called yet (",
                           address, ")"));
  }
  ++strangers_;
  strangers_of_.Add(host);
  connections_.emplace(address,
                       Connection{.fd = fd, .socket = SocketOf(fd), .host = host, .since = clock_.Now()});
  return absl::OkStatus();
}

absl::Status OpenConnections::Claim(const Caller& caller) {
  if (caller.fingerprints == nullptr) {
    return absl::OkStatus();
  }
  const absl::MutexLock lock(&mu_);
  const auto [begin, end] = connections_.equal_range(caller.address);
  // Earlier connections of the same address may be listed that have ended but are not forgotten yet.
  const auto found = std::find_if(begin, end, [](const auto& entry) {
    const Connection& each = entry.second;
    return !each.caller.has_value() && SocketOf(each.fd) == each.socket;
  });
  if (found == end) {
    return absl::OkStatus();
  }
  const tls::Identity& identity = caller.identity;
  const std::string who = tls::ToText(identity);
  const bool is_worker = identity.role == tls::Role::kWorker;
  const size_t most = is_worker ? limits_.most_of_worker : limits_.most_of_one;
  if (nums_.NumOf(who) >= most) {
    // The caller may have closed some a moment ago. `found` is open, because its client is calling.
    ForgetEnded(found);
  }
  if (nums_.NumOf(who) >= most) {
    found->second.until = std::min(found->second.until, clock_.Now() + kLinger);
    return absl::ResourceExhaustedError(absl::StrCat(
        who, " has ", most, " connections open, the most that one caller may have; ",
        is_worker ? "raise LimitNOFILE of the controller, or give a part of the pool another certificate"
                  : "close some, or share them"));
  }
  nums_.Add(who);
  --strangers_;
  strangers_of_.Remove(found->second.host);
  found->second.caller = caller;
  found->second.until = absl::InfiniteFuture();
  return absl::OkStatus();
}

void OpenConnections::Sweep(const tls::RevokedList& revoked) {
  std::vector<std::string> ended;
  const absl::MutexLock lock(&mu_);
  ForgetEnded(connections_.end());
  const absl::Time now = clock_.Now();
  for (auto& [address, connection] : connections_) {
    const std::optional<Caller>& caller = connection.caller;
    if (caller.has_value() && revoked.Has(caller->identity, caller->fingerprints)) {
      ended.push_back(absl::StrCat(tls::ToText(caller->identity), " at ", address));
      const auto [begin, end] = connections_.equal_range(address);
      for (auto it = begin; it != end; ++it) {
        End(it->second.fd, it->second.socket);
      }
    } else if (connection.until <= now || (!caller.has_value() && connection.since + kFirstCall <= now)) {
      End(connection.fd, connection.socket);
    }
  }
  if (!ended.empty()) {
    platform::Log(platform::LogLevel::kInfo, "connections of revoked certificates were ended",
                  {{"count", absl::StrCat(ended.size())}, {"who", absl::StrJoin(ended, ", ")}});
  }
}

}  // namespace tandem::controller
