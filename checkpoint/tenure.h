// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"

namespace tandem::checkpoint {

// What a process does in its checkpoint directory that only the owner may do, and the end of its ownership.
// The thread that ends a process gives the directory back while another may be between its look at the owner
// and a rename: the next job, which need not wait then, must not find that rename done under it.
//
// Thread-safe.
class Tenure {
 public:
  // Runs `deed`, which looks at the owner and then takes a few calls of the file system. Cancelled, without
  // running it, after End.
  absl::Status Do(const std::function<absl::Status()>& deed) ABSL_LOCKS_EXCLUDED(mu_);

  // Waits for the deed in progress; none begins any more.
  void End() ABSL_LOCKS_EXCLUDED(mu_);

 private:
  absl::Mutex mu_;  // held for as long as a deed takes
  bool ended_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace tandem::checkpoint
