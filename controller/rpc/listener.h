// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "platform/rare_log.h"

namespace tandem::controller {

// Unavailable, in one line that names `flag`, if a process already listens at the unix socket "unix:/path".
// OK for a "host:port", which Listener::Open checks.
absl::Status CheckNotInUse(const std::string& address, const std::string& flag = "--listen");

// A listening socket that hands its connections to a server. gRPC's own listener never accepts again after an
// accept has failed for want of descriptors (CVE-2023-4785). This one closes new connections while four
// fifths of the descriptors are in use, so that open connections, the store and the metrics keep what they
// need. The log has their number (rare_log.h).
class Listener {
 public:
  // Binds "host:port" (port 0: any free port) or "unix:/path", replacing a socket file at which no process
  // listens. Debian's installer maps the machine's own name to 127.0.1.1, while other machines know another
  // address of it. So for a name with only loopback addresses, other than "localhost", every address of the
  // machine is bound. Errors are one line, which names `flag`.
  static absl::StatusOr<std::unique_ptr<Listener>> Open(const std::string& address,
                                                        const std::string& flag = "--listen");
  // Stops accepting, and removes the socket file unless another process has replaced it.
  ~Listener();

  // The address, with the real port if 0 was asked for.
  const std::string& address() const { return address_; }

  // Starts to accept: `accepted` is called with each connection, whose descriptor it owns, from a thread of
  // this object.
  void Start(std::function<void(int fd)> accepted);

 private:
  Listener(std::string address, std::vector<int> sockets, int wake, int spare);

  void Run();
  void Accept(int socket);
  void Shed(int fd, int64_t limit);

  std::string address_;
  std::string path_;                               // of a unix socket
  std::optional<std::pair<dev_t, ino_t>> socket_;  // its file, by which a file that replaced it is recognised
  std::vector<int> sockets_;
  int wake_ = -1;   // an eventfd that ends the thread
  int spare_ = -1;  // closed to make room to accept, and close, a connection when no descriptor is left
  std::function<void(int)> accepted_;
  platform::RareLog shed_;  // connections that were closed
  std::thread thread_;
};

}  // namespace tandem::controller
