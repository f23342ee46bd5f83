// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "controller/rpc/callers.h"
#include "controller/rpc/guarded_connection.h"
#include "controller/rpc/message_limit.h"
#include "platform/clock.h"

namespace tandem::tls {
class ServerTls;
}

namespace tandem::controller {

// Stands between the clients' connections and gRPC: ends their TLS, says who they are (callers.h), and lets
// no message that is longer than the limit reach it, nor too many that have not ended (see message_limit.h).
// A client that is not to be served gets the reason (call_refuser.h); gRPC never sees the connection.
//
// A connection that is served costs two more descriptors and at most 128 KiB a direction: a side is read only
// when what was read before has left. Handshakes have ten seconds, and while a
// thousand are in progress a new connection is closed at once: the oldest are the nearest to their end, and
// of ten thousand workers that return together each gets its turn. One thread serves all connections.
// Thread-safe.
class ConnectionGuard {
 public:
  struct Options {
    uint32_t most_message_bytes = 4 << 20;
    int64_t most_unfinished_bytes = 128 << 20;
    // Outlives the guard; null: connections are taken as they come, from tls::Role::kLocal.
    const tls::ServerTls* tls = nullptr;
    size_t most_strangers = 1024;
    size_t most_of_one = 256;  // connections of one user or admin, over all guards of `callers`
    // Connections of one worker's certificate, which a whole pool may share.
    size_t most_of_worker = std::numeric_limits<size_t>::max();
  };

  // For most_of_worker: two fifths of what so many descriptors are enough for, so that one certificate cannot
  // use up the controller's.
  static size_t MostOfAWorker(uint64_t descriptors);

  // `serve` is called with a descriptor, which it owns, for every connection that is to be served: from the
  // thread that calls Add, or, with TLS, from one of this object. `callers` and `clock` outlive the guard.
  ConnectionGuard(const Options& options, Callers& callers, const platform::Clock& clock,
                  std::function<void(int fd)> serve);
  // Closes every connection.
  ~ConnectionGuard();

  // Owns `fd`, a connected socket that does not block. Where the server closes its end, the client has five
  // seconds to take the rest.
  void Add(int fd) ABSL_LOCKS_EXCLUDED(mu_);

  // Closes the connections of those whose certificate has been revoked since they were let in.
  void Recheck() ABSL_LOCKS_EXCLUDED(mu_);

 private:
  void Run() ABSL_LOCKS_EXCLUDED(mu_);
  // False where this object ends.
  bool TakeAdded() ABSL_LOCKS_EXCLUDED(mu_);
  void Serve(uint64_t id);
  // Goes on with the handshake of `id`; true where it is over, and the client is served or refused from now
  // on.
  bool Greet(uint64_t id, GuardedConnection& connection);
  void Refuse(uint64_t id, GuardedConnection& connection, const absl::Status& why);
  void CloseAt(absl::Time time, uint64_t id);
  void Erase(uint64_t id);
  void Tell(absl::Time now);

  const Options options_;
  Callers& callers_;
  UnfinishedMessages unfinished_;  // of the thread
  const platform::Clock& clock_;
  const std::function<void(int)> serve_;
  int epoll_ = -1;
  int wake_ = -1;  // an eventfd: something was added, or this object ends

  absl::Mutex mu_;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  bool recheck_ ABSL_GUARDED_BY(mu_) = false;
  std::vector<std::unique_ptr<GuardedConnection>> added_ ABSL_GUARDED_BY(mu_);

  // Used by the thread alone.
  std::string buffer_;
  uint64_t next_id_ = 1;  // 0 is wake_
  std::map<uint64_t, std::unique_ptr<GuardedConnection>> connections_;
  std::set<uint64_t> due_;                             // those that may have something to move
  std::set<uint64_t> strangers_;                       // who they are is not known yet, or they are refused
  std::set<std::pair<absl::Time, uint64_t>> closing_;  // until when; some are gone
  int64_t refused_ = 0;                                // messages since the last line
  absl::Time logged_ = absl::InfinitePast();
  int64_t turned_away_ = 0;  // clients since the last line
  std::string why_;          // the last of them
  absl::Time clients_logged_ = absl::InfinitePast();
  std::thread thread_;
};

}  // namespace tandem::controller
