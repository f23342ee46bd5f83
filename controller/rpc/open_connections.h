// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "controller/rpc/call_limits.h"
#include "controller/rpc/callers.h"
#include "platform/clock.h"
#include "tls/revoked_list.h"

namespace tandem::controller {

// The TLS connections that were handed to gRPC, and the limits on how many each client may have. gRPC tells
// neither when a connection ends nor which connection a call uses. So each connection is recorded as a
// descriptor with the inode of its socket: it is open as long as the descriptor still has that inode. The
// connection of a call is found by the client's address. Two connections of one client to two ports of the
// controller may have the same address; they are counted as two, and ended together.
//
// A connection on which no call was made yet is a stranger's: it may be in the middle of its handshake.
// Thread-safe.
class OpenConnections {
 public:
  struct Limits {
    size_t most_strangers = 1024;
    size_t most_strangers_of_address = 512;  // so that one machine cannot keep out all others
    size_t most_of_one = 256;                // connections of one user or admin
    // Connections of one worker's certificate, which a whole pool may share.
    size_t most_of_worker = std::numeric_limits<size_t>::max();
  };
  // How long a connection may be open without a call. gRPC ends handshakes that take ten seconds.
  static constexpr absl::Duration kFirstCall = absl::Seconds(30);

  // Returns two fifths of `descriptors`, the limit of the process, for most_of_worker: one certificate cannot
  // use up all of them.
  static size_t MostOfAWorker(uint64_t descriptors);

  // `clock` must outlive it.
  OpenConnections(const Limits& limits, const platform::Clock& clock) : limits_(limits), clock_(clock) {}

  // Records a connected socket that is handed to gRPC next. ResourceExhausted if there are too many
  // strangers: then close the socket instead.
  absl::Status Add(int fd) ABSL_LOCKS_EXCLUDED(mu_);

  // Records that the connection from the address of `caller` belongs to it. If the caller has too many,
  // returns ResourceExhausted, in a sentence for the caller, and ends the connection five seconds later, so
  // that the client can read why. Connections that were never added are not limited.
  absl::Status Claim(const Caller& caller) ABSL_LOCKS_EXCLUDED(mu_);

  // Forgets connections that have ended; ends, and logs, those that have made no call for too long and those
  // whose caller is revoked. Call about once a second.
  void Sweep(const tls::RevokedList& revoked) ABSL_LOCKS_EXCLUDED(mu_);

 private:
  struct Connection {
    int fd = -1;
    ino_t socket = 0;
    std::string host;
    absl::Time since;
    absl::Time until = absl::InfiniteFuture();
    std::optional<Caller> caller;  // nullopt: not authenticated yet
  };
  using ByAddress = std::multimap<std::string, Connection>;  // "10.0.0.3:40112"

  ByAddress::iterator Forget(ByAddress::iterator it) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Forgets all connections that have ended, but for `kept`.
  void ForgetEnded(ByAddress::iterator kept) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool HasRoomFor(const std::string& host) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const Limits limits_;
  const platform::Clock& clock_;
  absl::Mutex mu_;
  ByAddress connections_ ABSL_GUARDED_BY(mu_);
  size_t strangers_ ABSL_GUARDED_BY(mu_) = 0;
  Tally strangers_of_ ABSL_GUARDED_BY(mu_);  // by host
  Tally nums_ ABSL_GUARDED_BY(mu_);          // by tls::ToText of the caller
};

// Returns the peer's address, "10.0.0.3:40112"; "unix" if it has no network address.
std::string AddressOfSocket(int fd);

}  // namespace tandem::controller
