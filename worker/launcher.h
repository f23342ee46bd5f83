// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "tandem/v1/trainer.pb.h"
#include "worker/input.h"
#include "worker/out_of_memory_watch.h"
#include "worker/rank_groups.h"
#include "worker/report_queue.h"
#include "worker/spawner.h"
#include "worker/state.h"

namespace tandem::worker {

// The program for ranks on GPUs, which lies beside the one for the CPU.
std::string CudaTrainer(const std::string& trainer);

// Starts the trainers of this worker, exchanges messages with them, samples their pages and notices their
// ends.
//
// Two threads a rank: one reads and waits for the exit (so everything that a rank said comes before its
// exit), one writes (so a trainer that does not read holds up no other). Thread-safe.
class Launcher {
 public:
  // Gets RankSpawned (with the process, for the record), SpawnFailed, FromRank, RankExited. Called from the
  // ranks' threads, and with SpawnFailed from Spawn if there is no thread for the rank.
  using Sink = std::function<void(Input)>;
  // Steps that a rank has recorded, in order, before its RankExited.
  using ProfiledSink = std::function<void(const RankKey&, v1::ProfiledStep)>;
  using SpawnedSink = std::function<void(const RankKey&, const ProcessId&)>;

  // `trainer`: path of the program, run as `run_as`; jobs on GPUs run CudaTrainer(trainer). `groups`: null:
  // ranks are in the control group of this process. Reports and tables go to `reports`.
  Launcher(std::string trainer, std::optional<RunAs> run_as, RankGroups* groups, ReportQueue& reports,
           SpawnedSink spawned, ProfiledSink profiled, Sink sink);

  // Kills what is left and waits for it.
  ~Launcher();

  // Answers through the sink. `start` is the first frame that the trainer gets.
  void Spawn(const RankKey& key, const v1::Start& start, const std::string& log_file)
      ABSL_LOCKS_EXCLUDED(mu_);

  // Forgets the ranks of an attempt that has ended.
  void Remove(const AttemptKey& attempt) ABSL_LOCKS_EXCLUDED(mu_);

  // Does nothing if the rank is gone.
  void Send(const RankKey& key, v1::ToTrainer message) ABSL_LOCKS_EXCLUDED(mu_);
  void Kill(const RankKey& key) ABSL_LOCKS_EXCLUDED(mu_);

  // Sets, in every page and in those of later ranks, that trainers stop waiting for a controller `after` from
  // now. Infinite: never.
  void SetOrphanDeadline(absl::Duration after) ABSL_LOCKS_EXCLUDED(mu_);

  std::vector<std::pair<RankKey, PageSample>> Sample() const ABSL_LOCKS_EXCLUDED(mu_);

 private:
  class Rank;

  std::shared_ptr<Rank> Find(const RankKey& key) const ABSL_LOCKS_EXCLUDED(mu_);

  const std::string trainer_;
  RankGroups* const groups_;
  ReportQueue& reports_;
  const SpawnedSink spawned_;
  const ProfiledSink profiled_;
  const Sink sink_;
  Spawner spawner_;
  mutable OutOfMemoryWatch memory_;
  mutable absl::Mutex mu_;
  int64_t orphan_deadline_ns_ ABSL_GUARDED_BY(mu_) = 0;
  // Gone ranks stay until Remove.
  std::map<RankKey, std::shared_ptr<Rank>> ranks_ ABSL_GUARDED_BY(mu_);
};

}  // namespace tandem::worker
