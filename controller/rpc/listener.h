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
#include "absl/time/time.h"

namespace tandem::controller {

// Unavailable, in one line that names `flag`, if a process already listens at the unix socket "unix:/path".
// OK for a "host:port", which Listener::Open checks.
absl::Status CheckNotInUse(const std::string& address, const std::string& flag = "--listen");

// A listening socket that hands its connections to a server. gRPC's own listener never accepts again once an
// accept has failed for want of descriptors (CVE-2023-4785); this one closes new connections while four
// fifths of the limit are in use, so those that are open, the store and the metrics keep what they need, and
// takes them again as soon as there is room. The first of them is logged, then one line in ten seconds.
class Listener {
 public:
  // Binds "host:port" (port 0: any) or "unix:/path", replacing a socket file at which no process listens. A
  // name whose addresses are all loopback, though it does not mean loopback everywhere ("localhost" does), is
  // this machine's own as Debian's installer writes it (127.0.1.1): then every address, because other
  // machines know it by another one. One line on errors, which names `flag`.
  static absl::StatusOr<std::unique_ptr<Listener>> Open(const std::string& address,
                                                        const std::string& flag = "--listen");
  // Stops accepting, and removes the socket file if it is still this one.
  ~Listener();

  // The address, with the real port if 0 was asked for.
  const std::string& address() const { return address_; }

  // From now on connections are given to `accepted`, which owns the descriptor; from a thread of this object.
  void Start(std::function<void(int fd)> accepted);

 private:
  Listener(std::string address, std::vector<int> sockets, int wake, int spare);

  void Run();
  void Accept(int socket);
  void Shed(int fd, int64_t limit);

  std::string address_;
  std::string path_;                               // of a unix socket
  std::optional<std::pair<dev_t, ino_t>> socket_;  // its file: a later one of that name is not ours
  std::vector<int> sockets_;
  int wake_ = -1;   // an eventfd that ends the thread
  int spare_ = -1;  // given up to accept, and close, a connection for which there is no other descriptor
  std::function<void(int)> accepted_;
  absl::Time logged_ = absl::InfinitePast();
  int64_t shed_ = 0;  // since the last line
  std::thread thread_;
};

}  // namespace tandem::controller
