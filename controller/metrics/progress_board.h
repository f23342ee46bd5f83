// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <optional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "controller/core/state.h"
#include "platform/clock.h"
#include "tandem/v1/state.pb.h"

namespace tandem::controller {

// The progress of every job that has ranks, as of the last Look, for readers that do not wait for the engine.
// Thread-safe.
class ProgressBoard {
 public:
  explicit ProgressBoard(const platform::Clock& clock) : clock_(clock) {}

  void Look(const State& state) ABSL_LOCKS_EXCLUDED(mu_);

  // Returns the progress as of now, which has aged since the last Look. nullopt for a job without ranks.
  std::optional<v1::Progress> Find(const std::string& job_id) const ABSL_LOCKS_EXCLUDED(mu_);

  // Returns the progress of all jobs that have ranks, by job name, which no two live jobs share.
  std::map<std::string, v1::Progress> ByName() const ABSL_LOCKS_EXCLUDED(mu_);

  // Sets job.progress if the job has some. If it waits behind others, sets job.message to what the first job
  // of the queue is and waits for.
  void Fill(v1::Job& job) const;

 private:
  struct Entry {
    std::string name;
    v1::Progress progress;  // as of looked_
  };

  v1::Progress AsOfNow(const v1::Progress& then) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const platform::Clock& clock_;
  mutable absl::Mutex mu_;
  absl::Time looked_ ABSL_GUARDED_BY(mu_);
  std::map<std::string, Entry> jobs_ ABSL_GUARDED_BY(mu_);
  std::string head_ ABSL_GUARDED_BY(mu_);  // that message; empty: no job waits
};

}  // namespace tandem::controller
