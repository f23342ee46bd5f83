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
#include "controller/rpc/caller.h"
#include "controller/rpc/open_calls.h"
#include "platform/clock.h"
#include "tls/revoked_list.h"

namespace tandem::controller {

// The TLS connections that gRPC has been given, and what each client may have of them. gRPC tells neither
// when a connection ends nor which one a call is of: so the number of the descriptor is remembered with the
// inode of its socket, and as long as they belong together the connection is open; a call's is found by the
// client's address. Two connections of one client to two of our ports may have the same address; the counts
// are right then too, and what ends one ends both.
//
// A connection that has made no call yet is a stranger's: it may be in the middle of its handshake.
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
  // How long one may be open without a call. gRPC ends handshakes that take ten seconds.
  static constexpr absl::Duration kFirstCall = absl::Seconds(30);

  // For most_of_worker: two fifths of so many descriptors, so that one certificate cannot use up the
  // controller's.
  static size_t MostOfAWorker(uint64_t descriptors);

  // `clock` outlives it.
  OpenConnections(const Limits& limits, const platform::Clock& clock) : limits_(limits), clock_(clock) {}

  // Records a connected socket that gRPC is given next. ResourceExhausted if there are too many strangers:
  // then close the socket instead.
  absl::Status Add(int fd) ABSL_LOCKS_EXCLUDED(mu_);

  // Records that the connection from the address of `caller` is its own. ResourceExhausted, in a sentence for
  // the caller, if it has too many; the connection ends five seconds later, so that the client can read why.
  // Connections that were never added are not limited.
  absl::Status Claim(const Caller& caller) ABSL_LOCKS_EXCLUDED(mu_);

  // Forgets connections that have ended, and ends those that have made no call for too long and those whose
  // caller is in the list, which are logged. Call about once a second.
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
  // All but `kept`.
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

// "10.0.0.3:40112"; "unix" if it has no network address.
std::string AddressOfSocket(int fd);

}  // namespace tandem::controller
