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

// The ranks of an attempt that run, or will in a moment (no process yet).
struct RanksRecord {
  std::string store_id;  // of the controller that assigned it
  std::map<int, ProcessId> ranks;
  MetricsPlace metrics = {};  // of rank 0, if that is one of them and ready
};

// What a worker must still know after its own death, below its state directory:
//   lock                                held by the running daemon
//   attempts/JOB/attempt-N/ranks.json   RanksRecord
//   attempts/JOB/attempt-N/ended.pb     v1.AttemptStatus of an end that the controller has not acknowledged
//   logs/JOB/attempt-N/rank-R.log       what the rank printed; after the end as long as LogLimits allow
// Not thread-safe; LogFile and log_limits are.
class Records {
 public:
  // Takes the folder (creates it). FailedPreconditionError, with the pid, if another daemon has it.
  static absl::StatusOr<Records> Open(platform::Files& files, const std::string& folder,
                                      const LogLimits& log_limits = {});

  // Writes the record, and creates the folder of the logs.
  absl::Status WriteRanks(const AttemptKey& attempt, const RanksRecord& record);
  absl::Status WriteEnd(const v1::AttemptStatus& status);
  // Removes the record of an end that was acknowledged, and the oldest of the logs that are not needed any
  // more.
  absl::Status Forget(const AttemptKey& attempt);

  // At start: kills what an earlier daemon left running, and returns all ends that are not acknowledged.
  // Attempts that ran then ended with it: cause WorkerLost; that end is written too.
  absl::StatusOr<std::vector<v1::AttemptStatus>> Recover(const std::string& worker_id, absl::Time now);

  // Where the recorded attempts that had their rank 0 here wrote their metrics.
  absl::StatusOr<std::map<AttemptKey, MetricsPlace>> MetricsPlaces() const;

  std::string LogFile(const RankKey& rank) const;

  // The limits that were given to Open, on a small disk with fewer bytes (log_limit.h).
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
