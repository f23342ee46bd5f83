// SPDX-License-Identifier: Apache-2.0
#include "platform/unix_socket.h"

#include <sys/socket.h>
#include <sys/un.h>

#include <cerrno>
#include <cstring>

#include "platform/regular_file.h"

namespace tandem::platform {

absl::StatusOr<bool> IsListening(const std::string& path) {
  sockaddr_un name = {};
  name.sun_family = AF_UNIX;
  if (path.size() >= sizeof(name.sun_path)) {
    return false;
  }
  std::memcpy(name.sun_path, path.data(), path.size());
  const Descriptor end(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const bool is_made = end.get() >= 0;
  if (is_made && (::connect(end.get(), reinterpret_cast<const sockaddr*>(&name), sizeof(name)) == 0 ||
                  errno == EAGAIN)) {
    return true;
  }
  if (is_made && (errno == ENOENT || errno == ENOTDIR || errno == ECONNREFUSED)) {
    return false;
  }
  return absl::UnavailableError(std::strerror(errno));
}

}  // namespace tandem::platform
