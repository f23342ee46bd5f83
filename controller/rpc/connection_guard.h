#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "controller/rpc/message_limit.h"
#include "platform/clock.h"

namespace tandem::controller {

// Stands between the clients' connections and gRPC, and lets no message that is longer than the limit reach
// it, nor too many that have not ended (see message_limit.h). Each connection costs two more descriptors and
// at most 128 KiB a direction: a side is read only when what was read before has left. One thread serves all
// of them. Thread-safe.
class ConnectionGuard {
 public:
  // `serve` is called with a descriptor, which it owns, for every connection; from the thread that calls Add.
  // `clock` outlives the guard.
  ConnectionGuard(uint32_t most_message_bytes, int64_t most_unfinished_bytes, const platform::Clock& clock,
                  std::function<void(int fd)> serve);
  // Closes every connection.
  ~ConnectionGuard();

  // Owns `fd`, a connected socket that does not block. Where the server closes its end, the client has five
  // seconds to take the rest.
  void Add(int fd) ABSL_LOCKS_EXCLUDED(mu_);

 private:
  class Connection;

  void Run() ABSL_LOCKS_EXCLUDED(mu_);
  // False where this object ends.
  bool TakeAdded() ABSL_LOCKS_EXCLUDED(mu_);
  void Serve(uint64_t id);

  const uint32_t most_message_bytes_;
  UnfinishedMessages unfinished_;  // of the thread
  const platform::Clock& clock_;
  const std::function<void(int)> serve_;
  int epoll_ = -1;
  int wake_ = -1;  // an eventfd: something was added, or this object ends

  absl::Mutex mu_;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  std::vector<std::unique_ptr<Connection>> added_ ABSL_GUARDED_BY(mu_);

  // Used by the thread alone.
  std::string buffer_;
  uint64_t next_id_ = 1;  // 0 is wake_
  std::map<uint64_t, std::unique_ptr<Connection>> connections_;
  std::set<uint64_t> due_;  // those that may have something to move
  std::deque<std::pair<absl::Time, uint64_t>>
      closing_;          // those that gRPC has closed: until when, earliest first
  int64_t refused_ = 0;  // messages since the last line
  absl::Time told_ = absl::InfinitePast();
  std::thread thread_;
};

}  // namespace tandem::controller
