// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <optional>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "cli/cluster/address.h"
#include "platform/steady_condition.h"
#include "tandem/v1/jobs.pb.h"

namespace grpc {
class ClientContext;
}

namespace tandem::cli {

class Connection;

// A watch that is open, over a connection of its own. It is read on a thread of its own, one response ahead,
// so that waits for the next go by the steady clock. Not thread-safe.
class WatchStream {
 public:
  enum class Event { kResponse, kTimeout, kClosed };

  // Begins at once.
  WatchStream(const Address& address, const v1::WatchRequest& request);
  ~WatchStream() ABSL_LOCKS_EXCLUDED(mu_);

  // Waits for the next response, at most `limit`. kClosed: status() says why, and so do all later calls.
  Event Next(absl::Duration limit, v1::WatchResponse& response) ABSL_LOCKS_EXCLUDED(mu_);
  const absl::Status& status() const { return status_; }

 private:
  void Run() ABSL_LOCKS_EXCLUDED(mu_);
  // Whether `context` is now that of the open call; not if the stream is to end.
  bool Open(grpc::ClientContext* context) ABSL_LOCKS_EXCLUDED(mu_);
  // Waits until the response before was taken.
  void Hand(v1::WatchResponse response) ABSL_LOCKS_EXCLUDED(mu_);

  const std::unique_ptr<Connection> connection_;
  const v1::WatchRequest request_;
  absl::Mutex mu_;
  platform::SteadyCondition changed_;  // of what follows
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  grpc::ClientContext* context_ ABSL_GUARDED_BY(mu_) = nullptr;  // of the call that is open
  std::optional<v1::WatchResponse> response_ ABSL_GUARDED_BY(mu_);
  bool closed_ ABSL_GUARDED_BY(mu_) = false;
  absl::Status status_;  // written before closed_, and not afterwards
  std::thread thread_;
};

}  // namespace tandem::cli
