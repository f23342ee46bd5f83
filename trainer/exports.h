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

namespace tandem::trainer {

// Exports checkpoints while the job trains: runs `tandem export` as a child of this process, one at a time,
// in the order of the steps, nice 10. Kept by a job's rank 0. The child is in the rank's process group, with
// which the worker ends it. Thread-safe.
class Exports {
 public:
  // Called when a step has not been exported, with the reason in one line, on this object's thread, or on
  // that of End.
  using Failed = std::function<void(int64_t step, const std::string& message)>;

  // `options` are those of a resolved job; `program` is the path of `tandem`.
  Exports(v1::Exports options, std::string program, Failed failed);
  // Ends the export in progress.
  ~Exports() ABSL_LOCKS_EXCLUDED(mu_);
  Exports(const Exports&) = delete;
  Exports& operator=(const Exports&) = delete;

  // The checkpoint of `step` is in `folder` and whole: if it is to be exported, it is, after those before it.
  void Committed(int64_t step, const std::string& folder) ABSL_LOCKS_EXCLUDED(mu_);

  // The steps whose checkpoints are being exported or wait for it: they must stay.
  std::set<int64_t> Pending() const ABSL_LOCKS_EXCLUDED(mu_);

  // Waits until no step is pending. Returns whether that is so; otherwise `wait` is over.
  bool Await(absl::Duration wait) ABSL_LOCKS_EXCLUDED(mu_);

  // Ends the export in progress, and reports what was pending as failed, because of `reason`. Nothing is
  // exported after it.
  void End(const std::string& reason) ABSL_LOCKS_EXCLUDED(mu_);

 private:
  struct Export {
    int64_t step = 0;
    std::string folder;  // the checkpoint
  };

  void Run() ABSL_LOCKS_EXCLUDED(mu_);
  std::string ToOf(int64_t step) const;  // the folder of the export
  // Runs the program. Returns why it failed; empty: it did not.
  std::string RunProgram(const std::string& folder, const std::string& to) ABSL_LOCKS_EXCLUDED(mu_);
  // Removes what an export to that folder has left that was killed.
  static void RemoveUnfinished(const std::string& to);

  const v1::Exports options_;
  const std::string program_;
  const Failed failed_;
  mutable absl::Mutex mu_;
  platform::SteadyCondition changed_;
  std::deque<Export> pending_ ABSL_GUARDED_BY(mu_);  // the first is in progress
  pid_t child_ ABSL_GUARDED_BY(mu_) = 0;             // 0: none runs
  std::string ending_ ABSL_GUARDED_BY(mu_);          // why no more is exported; empty: more is
  std::thread thread_;                               // must be last, because it uses the other members
};

}  // namespace tandem::trainer
