// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"

namespace tandem::checkpoint {

// Serializes what a process does as owner of its checkpoint directory with the end of its ownership. The
// thread that ends a process releases the directory while another may be between its check of the owner and a
// rename. The next job then starts at once and must not see that rename.
//
// Thread-safe.
class Tenure {
 public:
  // Runs `deed`, which checks the owner and then makes a few calls to the file system. After End, returns
  // Cancelled without running it.
  absl::Status Do(const std::function<absl::Status()>& deed) ABSL_LOCKS_EXCLUDED(mu_);

  // Waits for the deed in progress. No other begins after it.
  void End() ABSL_LOCKS_EXCLUDED(mu_);

 private:
  absl::Mutex mu_;  // held while a deed runs
  bool ended_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace tandem::checkpoint
