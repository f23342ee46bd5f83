// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <set>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "platform/steady_condition.h"
#include "tandem/v1/job.pb.h"

namespace tandem::comm {
class Communicator;
}

namespace tandem::trainer {

// Exports checkpoints while the job trains: runs `tandem export` as a child process with nice value 10, for
// one checkpoint at a time, in the order of the steps. Used by rank 0 of a job. The child is in the rank's
// process group, so the worker ends both together. Thread-safe.
class Exports {
 public:
  // Called when a step could not be exported, with the reason in one line, on this object's thread or on the
  // thread that calls End.
  using Failed = std::function<void(int64_t step, const std::string& message)>;

  // `options` are those of a resolved job; `program` is the path of `tandem`.
  Exports(v1::Exports options, std::string program, Failed failed);
  // Ends the export in progress.
  ~Exports() ABSL_LOCKS_EXCLUDED(mu_);
  Exports(const Exports&) = delete;
  Exports& operator=(const Exports&) = delete;

  // Must be called when the checkpoint of `step` is whole in `folder`. Queues its export if `options` ask for
  // that step.
  void Committed(int64_t step, const std::string& folder) ABSL_LOCKS_EXCLUDED(mu_);

  // Returns the steps whose exports are queued or in progress. Their checkpoints must not be removed.
  std::set<int64_t> Pending() const ABSL_LOCKS_EXCLUDED(mu_);

  // Waits until no step is pending, at most for `wait`. Returns whether no step is pending.
  bool Await(absl::Duration wait) ABSL_LOCKS_EXCLUDED(mu_);

  // Ends the export in progress, and reports all pending steps as failed for `reason`. Nothing is exported
  // afterwards.
  void End(const std::string& reason) ABSL_LOCKS_EXCLUDED(mu_);

 private:
  struct Export {
    int64_t step = 0;
    std::string folder;  // the checkpoint
  };

  void Run() ABSL_LOCKS_EXCLUDED(mu_);
  // Runs the program. Returns why it failed, or the empty string if it succeeded.
  std::string RunProgram(const std::string& folder, const std::string& to) ABSL_LOCKS_EXCLUDED(mu_);
  // Removes the unfinished files of a killed export to that folder.
  static void RemoveUnfinished(const std::string& to);

  const v1::Exports options_;
  const std::string program_;
  const Failed failed_;
  mutable absl::Mutex mu_;
  platform::SteadyCondition changed_;
  std::deque<Export> pending_ ABSL_GUARDED_BY(mu_);  // the first one is in progress
  pid_t child_ ABSL_GUARDED_BY(mu_) = 0;             // 0: no child runs
  std::string ending_ ABSL_GUARDED_BY(mu_);          // why exports have ended; empty: they have not
  std::thread thread_;                               // must be last, because it uses the other members
};

// Collective. Waits until rank 0 has exported its pending steps, at most an hour, and ends the other exports.
// `exports` is null on other ranks. They wait, too, because the first rank that exits ends the job. Calls
// `moved` once a second. Throws CommError.
void FinishExports(comm::Communicator& comm, Exports* exports, const std::function<void()>& moved);

}  // namespace tandem::trainer
