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

// An open watch, over a connection of its own. A thread of the stream reads one response ahead, so Next can
// limit its wait by the steady clock. Not thread-safe.
class WatchStream {
 public:
  enum class Event { kResponse, kTimeout, kClosed };

  // Opens the watch.
  WatchStream(const Address& address, const v1::WatchRequest& request);
  ~WatchStream() ABSL_LOCKS_EXCLUDED(mu_);

  // Waits at most `limit` for the next response. After kClosed, status() says why the watch ended, and all
  // later calls return kClosed.
  Event Next(absl::Duration limit, v1::WatchResponse& response) ABSL_LOCKS_EXCLUDED(mu_);
  const absl::Status& status() const { return status_; }

 private:
  void Run() ABSL_LOCKS_EXCLUDED(mu_);
  // Stores the context of the open call (null: none is open), which destruction cancels. Returns false if
  // `context` is null or destruction has begun.
  bool Open(grpc::ClientContext* context) ABSL_LOCKS_EXCLUDED(mu_);
  // Stores `response` for Next, after waiting until Next has taken the previous response.
  void Hand(v1::WatchResponse response) ABSL_LOCKS_EXCLUDED(mu_);

  const std::unique_ptr<Connection> connection_;
  const v1::WatchRequest request_;
  absl::Mutex mu_;
  platform::SteadyCondition changed_;  // a member below has changed
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  grpc::ClientContext* context_ ABSL_GUARDED_BY(mu_) = nullptr;  // of the open call
  std::optional<v1::WatchResponse> response_ ABSL_GUARDED_BY(mu_);
  bool closed_ ABSL_GUARDED_BY(mu_) = false;
  absl::Status status_;  // written before closed_, and not afterwards
  std::thread thread_;
};

}  // namespace tandem::cli
