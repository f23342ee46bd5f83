// SPDX-License-Identifier: Apache-2.0
#include "controller/rpc/listener.h"

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "platform/clock.h"
#include "platform/host.h"
#include "platform/log.h"
#include "platform/net_address.h"
#include "platform/status_macros.h"
#include "platform/unix_socket.h"

namespace tandem::controller {
namespace {

constexpr int kBacklog = 1024;
// How long a peer may leave data unacknowledged; the keepalive timeout of the server.
constexpr unsigned kUserTimeoutMs = 5000;

int OpenSpare() { return open("/dev/null", O_RDONLY | O_CLOEXEC); }

// The address to listen on, and the flag that has it.
struct Wanted {
  const std::string& address;
  const std::string& flag;
};

absl::Status Failed(const Wanted& wanted, const std::string& why) {
  return absl::UnavailableError(
      absl::StrCat("cannot listen on ", wanted.address, ": ", why, "; give another ", wanted.flag));
}

absl::Status Failed(const Wanted& wanted, int error) {
  const absl::Status failed = Failed(wanted, std::string(std::strerror(error)));
  return error == EADDRINUSE
             ? absl::UnavailableError(absl::StrCat(failed.message(), ", or stop what listens there"))
             : failed;
}

// Returns a socket that listens, or -1 with errno. `v4_too`: a socket of IPv6's wildcard also accepts IPv4.
int Listen(const sockaddr* name, socklen_t length, int protocol, bool v4_too) {
  const int fd = socket(name->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, protocol);
  if (fd < 0) {
    return -1;
  }
  const int on = 1;
  if (name->sa_family != AF_UNIX) {
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));  // connections inherit both
    setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &kUserTimeoutMs, sizeof(kUserTimeoutMs));
  }
  if (name->sa_family == AF_INET6) {
    const int v6_only = v4_too ? 0 : 1;
    setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &v6_only, sizeof(v6_only));
  }
  if (bind(fd, name, length) != 0 || listen(fd, kBacklog) != 0) {
    const int error = errno;
    close(fd);
    errno = error;
    return -1;
  }
  return fd;
}

// Returns the file of that name; nullopt if there is none.
std::optional<std::pair<dev_t, ino_t>> FileAt(const std::string& path) {
  struct stat there {};
  return lstat(path.c_str(), &there) == 0 ? std::optional(std::pair(there.st_dev, there.st_ino))
                                          : std::nullopt;
}

int PortOf(int fd) {
  sockaddr_storage name{};
  socklen_t length = sizeof(name);
  getsockname(fd, reinterpret_cast<sockaddr*>(&name), &length);
  return ntohs(name.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6*>(&name)->sin6_port
                                          : reinterpret_cast<sockaddr_in*>(&name)->sin_port);
}

void SetPort(int port, sockaddr* name) {
  (name->sa_family == AF_INET6 ? reinterpret_cast<sockaddr_in6*>(name)->sin6_port
                               : reinterpret_cast<sockaddr_in*>(name)->sin_port) =
      htons(static_cast<uint16_t>(port));
}

absl::StatusOr<std::vector<int>> ListenOnPath(const Wanted& wanted) {
  const std::string& address = wanted.address;
  sockaddr_un name{};
  name.sun_family = AF_UNIX;
  const std::string path = address.substr(5);
  std::memcpy(name.sun_path, path.data(), std::min(path.size(), sizeof(name.sun_path) - 1));
  // The socket of a controller that has ended is replaced; anything else is not ours to remove. The check is
  // repeated, because a controller that has started there meanwhile would go on, but be unreachable.
  struct stat there {};
  if (lstat(path.c_str(), &there) == 0) {
    if (!S_ISSOCK(there.st_mode)) {
      return absl::FailedPreconditionError(
          absl::StrCat("cannot listen on ", address, ": the file exists and is not a socket; choose another ",
                       wanted.flag));
    }
    TANDEM_RETURN_IF_ERROR(CheckNotInUse(address, wanted.flag));
    unlink(path.c_str());
  }
  const int fd = Listen(reinterpret_cast<const sockaddr*>(&name), sizeof(name), 0, false);
  if (fd < 0) {
    return Failed(wanted, errno);
  }
  return std::vector<int>{fd};
}

using Addresses = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

// Resolves a name or a numeric address; "" means every address. The error has gai_strerror's text.
absl::StatusOr<Addresses> Resolve(const std::string& host, int port) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE;
  addrinfo* found = nullptr;
  const int error =
      getaddrinfo(host.empty() ? nullptr : host.c_str(), std::to_string(port).c_str(), &hints, &found);
  return error == 0 ? absl::StatusOr<Addresses>(Addresses(found, &freeaddrinfo))
                    : absl::UnavailableError(gai_strerror(error));
}

bool AreLoopback(const addrinfo* addresses) {
  for (const addrinfo* at = addresses; at != nullptr; at = at->ai_next) {
    char text[NI_MAXHOST];
    if (getnameinfo(at->ai_addr, at->ai_addrlen, text, sizeof(text), nullptr, 0, NI_NUMERICHOST) != 0 ||
        !platform::IsLoopback(text)) {
      return false;
    }
  }
  return true;
}

// Listens on every address of the host, with one port.
absl::StatusOr<std::vector<int>> ListenOnHost(const Wanted& wanted, int& port) {
  const std::optional<platform::HostPort> place = platform::ReadHostPort(wanted.address);
  if (!place.has_value()) {
    return Failed(wanted, std::string("it is not an address"));
  }
  absl::StatusOr<Addresses> found = Resolve(place->host, place->port);
  if (found.ok() && !platform::IsLoopback(place->host) && AreLoopback(found->get())) {
    platform::Log(platform::LogLevel::kWarning,
                  "this machine's own name means loopback here, which no other machine reaches: listening on "
                  "every address of it",
                  {{"flag", wanted.flag}, {"address", wanted.address}});
    found = Resolve("", place->port);
  }
  if (!found.ok()) {
    return Failed(wanted, std::string(found.status().message()));
  }
  std::vector<int> sockets;
  int first_error = 0;
  bool has_v4 = false;
  for (addrinfo* at = found->get(); at != nullptr; at = at->ai_next) {
    has_v4 = has_v4 || at->ai_family == AF_INET;
  }
  for (addrinfo* at = found->get(); at != nullptr; at = at->ai_next) {
    if (!sockets.empty()) {
      SetPort(port, at->ai_addr);
    }
    const int fd = Listen(at->ai_addr, at->ai_addrlen, at->ai_protocol, !has_v4);
    if (fd >= 0) {
      sockets.push_back(fd);
      port = PortOf(fd);
    } else if (first_error == 0) {
      first_error = errno;
    }
  }
  // A machine without IPv6 still has it in its addresses of "localhost", so one such failure is no error;
  // but an address that is in use is.
  if (sockets.empty() || first_error == EADDRINUSE) {
    for (const int fd : sockets) {
      close(fd);
    }
    return Failed(wanted, first_error);
  }
  return sockets;
}

}  // namespace

absl::Status CheckNotInUse(const std::string& address, const std::string& flag) {
  if (!absl::StartsWith(address, "unix:")) {
    return absl::OkStatus();
  }
  const absl::StatusOr<bool> listening = platform::IsListening(address.substr(5));
  if (!listening.ok()) {
    return absl::UnavailableError(absl::StrCat(
        flag, " ", address, ": it cannot be told whether another process listens there: ",
        listening.status().message(), "; remove that socket if none does, or give another ", flag));
  }
  return *listening
             ? absl::UnavailableError(absl::StrCat(
                   flag, " ", address, ": another process listens there; stop it, or give another ", flag))
             : absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Listener>> Listener::Open(const std::string& address,
                                                         const std::string& flag) {
  const bool is_path = absl::StartsWith(address, "unix:");
  const Wanted wanted = {.address = address, .flag = flag};
  int port = 0;
  TANDEM_ASSIGN_OR_RETURN(const std::vector<int> sockets,
                          is_path ? ListenOnPath(wanted) : ListenOnHost(wanted, port));
  const std::string bound =
      is_path ? address : absl::StrCat(address.substr(0, address.rfind(':')), ":", port);
  return std::unique_ptr<Listener>(
      new Listener(bound, sockets, eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), OpenSpare()));
}

Listener::Listener(std::string address, std::vector<int> sockets, int wake, int spare)
    : address_(std::move(address)),
      path_(absl::StartsWith(address_, "unix:") ? address_.substr(5) : ""),
      socket_(path_.empty() ? std::nullopt : FileAt(path_)),
      sockets_(std::move(sockets)),
      wake_(wake),
      spare_(spare) {}

Listener::~Listener() {
  if (thread_.joinable()) {
    eventfd_write(wake_, 1);
    thread_.join();
  }
  // The inode is not reused while the socket is open.
  if (socket_.has_value() && FileAt(path_) == socket_) {
    unlink(path_.c_str());
  }
  for (const int fd : sockets_) {
    close(fd);
  }
  close(wake_);
  if (spare_ >= 0) {
    close(spare_);
  }
}

void Listener::Start(std::function<void(int)> accepted) {
  accepted_ = std::move(accepted);
  thread_ = std::thread([this] { Run(); });
}

void Listener::Run() {
  std::vector<pollfd> waiting = {{.fd = wake_, .events = POLLIN}};
  for (const int fd : sockets_) {
    waiting.push_back({.fd = fd, .events = POLLIN});
  }
  while (true) {
    if (poll(waiting.data(), waiting.size(), -1) < 0) {
      continue;  // interrupted
    }
    if (waiting[0].revents != 0) {
      return;
    }
    for (size_t i = 1; i < waiting.size(); ++i) {
      if (waiting[i].revents != 0) {
        Accept(waiting[i].fd);
      }
    }
  }
}

void Listener::Accept(int socket) {
  const auto limit = static_cast<int64_t>(platform::DescriptorLimit());
  const int fd = accept4(socket, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
  if (fd >= 0) {
    if (spare_ < 0) {
      spare_ = OpenSpare();
    }
    // The kernel gives the lowest free number, so at least so many descriptors are in use.
    if (fd >= limit * 4 / 5) {
      Shed(fd, limit);
    } else {
      accepted_(fd);
    }
    return;
  }
  if (errno != EMFILE && errno != ENFILE && errno != ENOMEM && errno != ENOBUFS) {
    return;  // the client has left again
  }
  // The connection would stay in the queue and wake this thread again and again, so it is accepted with the
  // spare descriptor.
  if (spare_ >= 0) {
    close(std::exchange(spare_, -1));
    Shed(accept4(socket, nullptr, nullptr, SOCK_CLOEXEC), limit);
  } else {
    Shed(-1, limit);
  }
  spare_ = OpenSpare();
}

void Listener::Shed(int fd, int64_t limit) {
  if (fd >= 0) {
    close(fd);
  } else {
    absl::SleepFor(absl::Milliseconds(50));  // another thread took the descriptor
  }
  if (const int64_t count = shed_.Count(platform::SteadyClock().Now()); count > 0) {
    platform::Log(
        platform::LogLevel::kWarning,
        "connections are turned away: nearly all file descriptors are in use; raise the limit (ulimit -n)",
        {{"listen", address_}, {"turned_away", absl::StrCat(count)}, {"limit", absl::StrCat(limit)}});
  }
}

}  // namespace tandem::controller
