// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "controller/store/sqlite.h"
#include "platform/steady_condition.h"

namespace tandem::controller {

// Reads a whole database file in search of damage (Database::Check) on a thread of its own: a file of 1 GiB
// takes a cold disk 20 s, and serving need not wait for that. Thread-safe.
class DatabaseCheck {
 public:
  // `path` leads to a file that this process has open (Database::Open) as long as this object lives. `done`
  // is called on the thread of the check, once, with what Database::Check says, unless this object ends
  // before.
  static absl::StatusOr<std::unique_ptr<DatabaseCheck>> Start(const std::string& path,
                                                              std::function<void(absl::Status)> done);
  // Breaks the check off.
  ~DatabaseCheck();
  DatabaseCheck(const DatabaseCheck&) = delete;
  DatabaseCheck& operator=(const DatabaseCheck&) = delete;

  // Whether `done` has returned within `patience`.
  bool Await(absl::Duration patience) ABSL_LOCKS_EXCLUDED(mu_);

 private:
  DatabaseCheck(std::unique_ptr<Database> db, std::function<void(absl::Status)> done);

  void Run() ABSL_LOCKS_EXCLUDED(mu_);

  const std::unique_ptr<Database> db_;  // of the thread, but for Interrupt
  const std::function<void(absl::Status)> done_;
  std::atomic<bool> stopping_ = false;
  absl::Mutex mu_;
  platform::SteadyCondition changed_;  // of ended_
  bool ended_ ABSL_GUARDED_BY(mu_) = false;
  std::thread thread_;
};

}  // namespace tandem::controller
