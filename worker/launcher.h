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
#include "worker/uploads.h"

namespace tandem::worker {

// The path of the trainer for ranks on GPUs, given the path of the one for the CPU.
std::string CudaTrainer(const std::string& trainer);

// Starts the trainers of this worker, exchanges messages with them, samples their pages and waits for their
// exits.
//
// There are two threads per rank. One reads and waits for the exit, so all messages of a rank arrive before
// its exit; the other writes, so a trainer that does not read delays no other. Thread-safe.
class Launcher {
 public:
  // Receives RankSpawned, SpawnFailed, FromRank and RankExited. Called from the ranks' threads, and by Spawn
  // with SpawnFailed if no thread can be started for the rank.
  using Sink = std::function<void(Input)>;

  // `trainer` is the path of the program for ranks on the CPU; ranks on GPUs run CudaTrainer(trainer). Both
  // run as `run_as`. If `groups` is null, ranks are in the control group of this process. Reports and tables
  // are added to `reports`, recorded steps to `uploads`.
  Launcher(std::string trainer, std::optional<RunAs> run_as, RankGroups* groups, ReportQueue& reports,
           Uploads& uploads, Sink sink);

  // Kills the remaining ranks and waits until they are gone.
  ~Launcher();

  // Starts a rank, and answers through the sink. `start` is the first frame that the trainer receives.
  void Spawn(const RankKey& key, const v1::Start& start, const std::string& log_file)
      ABSL_LOCKS_EXCLUDED(mu_);

  // Frees the ranks of an attempt that has ended.
  void Remove(const AttemptKey& attempt) ABSL_LOCKS_EXCLUDED(mu_);

  // Whether ranks of the attempt were started here and not yet removed.
  bool Has(const AttemptKey& attempt) const ABSL_LOCKS_EXCLUDED(mu_);

  // Both do nothing if the rank is gone.
  void Send(const RankKey& key, v1::ToTrainer message) ABSL_LOCKS_EXCLUDED(mu_);
  void Kill(const RankKey& key) ABSL_LOCKS_EXCLUDED(mu_);

  // Sets the orphan deadline of all present and future pages to `after` from now; infinite: no deadline.
  void SetOrphanDeadline(absl::Duration after) ABSL_LOCKS_EXCLUDED(mu_);

  std::vector<std::pair<RankKey, PageSample>> Sample() const ABSL_LOCKS_EXCLUDED(mu_);

 private:
  class Rank;

  std::shared_ptr<Rank> Find(const RankKey& key) const ABSL_LOCKS_EXCLUDED(mu_);

  const std::string trainer_;
  RankGroups* const groups_;
  ReportQueue& reports_;
  Uploads& uploads_;
  const Sink sink_;
  Spawner spawner_;
  mutable OutOfMemoryWatch memory_;
  mutable absl::Mutex mu_;
  int64_t orphan_deadline_ns_ ABSL_GUARDED_BY(mu_) = 0;
  // Includes ranks that are gone, until Remove.
  std::map<RankKey, std::shared_ptr<Rank>> ranks_ ABSL_GUARDED_BY(mu_);
};

}  // namespace tandem::worker
