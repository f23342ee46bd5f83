// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "platform/files.h"
#include "platform/regular_file.h"
#include "tandem/v1/workers.pb.h"
#include "worker/log_limit.h"
#include "worker/metrics_tail.h"
#include "worker/processes.h"
#include "worker/state.h"

namespace tandem::worker {

// The ranks of an attempt that run or are about to (with no process yet: pid 0).
struct RanksRecord {
  std::string store_id;  // of the controller that assigned it
  std::map<int, ProcessId> ranks;
  MetricsPlace metrics = {};  // set if rank 0 is among them and ready
};

// The files that must survive the daemon, in the worker's state directory:
//   lock                                held by the running daemon
//   attempts/JOB/attempt-N/ranks.json   RanksRecord
//   attempts/JOB/attempt-N/ended.pb     v1.AttemptStatus of an end that the controller has not acknowledged
//   logs/JOB/attempt-N/rank-R.log       the rank's output; kept after the end as LogLimits allow
// Not thread-safe, except LogFile and log_limits.
class Records {
 public:
  // Creates the folder if it is missing, and locks it. FailedPreconditionError, with the pid, if another
  // daemon holds the lock.
  static absl::StatusOr<Records> Open(platform::Files& files, const std::string& folder,
                                      const LogLimits& log_limits = {});

  // Writes the record of an attempt, and creates the folder of its logs.
  absl::Status WriteRanks(const AttemptKey& attempt, const RanksRecord& record);
  absl::Status WriteEnd(const v1::AttemptStatus& status);
  // Removes the record of an attempt whose end was acknowledged, and the oldest logs (PruneLogs).
  absl::Status Forget(const AttemptKey& attempt);

  // Called at the start: kills ranks that an earlier daemon left running, and returns all ends that are not
  // acknowledged. An attempt that was running ended with that daemon, so its end (with cause WorkerLost) is
  // written and returned too.
  absl::StatusOr<std::vector<v1::AttemptStatus>> Recover(const std::string& worker_id, absl::Time now);

  // The metrics files of the recorded attempts that had rank 0 on this worker.
  absl::StatusOr<std::map<AttemptKey, MetricsPlace>> MetricsPlaces() const;

  std::string LogFile(const RankKey& rank) const;

  // The limits that were given to Open, with fewer bytes if the disk is small (log_limit.h).
  const LogLimits& log_limits() const { return log_limits_; }

 private:
  Records(platform::Files& files, std::string folder, const LogLimits& log_limits, platform::Descriptor lock)
      : files_(files), folder_(std::move(folder)), log_limits_(log_limits), lock_(std::move(lock)) {}

  std::string AttemptFolder(const AttemptKey& attempt) const;
  absl::StatusOr<v1::AttemptStatus> RecoverAttempt(const AttemptKey& attempt, const std::string& worker_id,
                                                   absl::Time now);

  platform::Files& files_;
  const std::string folder_;
  const LogLimits log_limits_;
  platform::Descriptor lock_;
};

}  // namespace tandem::worker
