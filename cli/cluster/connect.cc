#include <netdb.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "cli/cluster/local_cluster.h"

namespace tandem::cli {

bool CanConnect(const std::string& address) {
  const std::string path = address.substr(std::string("unix:").size());
  sockaddr_un name = {};
  name.sun_family = AF_UNIX;
  if (path.size() >= sizeof(name.sun_path)) {
    return false;
  }
  std::memcpy(name.sun_path, path.data(), path.size());
  const int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const bool connected = ::connect(fd, reinterpret_cast<const sockaddr*>(&name), sizeof(name)) == 0;
  ::close(fd);
  return connected;
}

absl::Status CanListen(const std::string& host_and_port) {
  const size_t colon = host_and_port.rfind(':');
  std::string host = host_and_port.substr(0, colon);
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
  }
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE;
  addrinfo* found = nullptr;
  const int lookup = ::getaddrinfo(host.c_str(), host_and_port.substr(colon + 1).c_str(), &hints, &found);
  if (lookup != 0) {
    return absl::InvalidArgumentError(absl::StrCat(host_and_port, ": ", ::gai_strerror(lookup)));
  }
  absl::Cleanup free = [found] { ::freeaddrinfo(found); };
  int error = 0;
  for (const addrinfo* each = found; each != nullptr && error == 0; each = each->ai_next) {
    const int fd = ::socket(each->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) {
      continue;  // a machine without IPv6
    }
    const int on = 1;  // as servers do: a port in TIME_WAIT is free
    ::setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    error = ::bind(fd, each->ai_addr, each->ai_addrlen) == 0 && ::listen(fd, 1) == 0 ? 0 : errno;
    ::close(fd);
  }
  return error == 0 ? absl::OkStatus()
                    : absl::FailedPreconditionError(absl::StrCat(host_and_port, ": ", std::strerror(error)));
}

}  // namespace tandem::cli
