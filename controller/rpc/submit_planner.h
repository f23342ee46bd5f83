// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <deque>
#include <functional>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "tandem/v1/job.pb.h"

namespace tandem::controller {

// Chooses, by a simulation (plan/prefetch_choice.h), what submitted specs leave open. That takes seconds, so
// it is done on a thread of its own, one spec after the other, and no other call waits for it. Thread-safe.
class SubmitPlanner {
 public:
  using Choose = std::function<absl::Status(v1::JobSpec& resolved)>;
  using Done = std::function<void(absl::Status status, v1::JobSpec resolved)>;

  explicit SubmitPlanner(Choose choose);
  ~SubmitPlanner();

  // Calls `done` from the planner's thread. ResourceExhausted if too many specs wait, Unavailable if it is
  // closed; then `done` is not called.
  absl::Status Post(v1::JobSpec resolved, Done done) ABSL_LOCKS_EXCLUDED(mu_);

  // Refuses the waiting specs with Unavailable, and completes the spec in progress.
  void Close() ABSL_LOCKS_EXCLUDED(mu_);

  static constexpr size_t kMostWaiting = 16;

 private:
  struct Item {
    v1::JobSpec resolved;
    Done done;
  };

  bool HasWork() const ABSL_SHARED_LOCKS_REQUIRED(mu_) { return stopping_ || !waiting_.empty(); }
  void Run() ABSL_LOCKS_EXCLUDED(mu_);

  const Choose choose_;
  absl::Mutex mu_;
  std::deque<Item> waiting_ ABSL_GUARDED_BY(mu_);
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  std::thread thread_;
};

}  // namespace tandem::controller
