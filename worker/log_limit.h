// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <set>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "platform/files.h"
#include "worker/state.h"

namespace tandem::worker {

// The logs of ranks may use at most half of the disk: a quarter for running ranks, a quarter for ended
// attempts; less on a large disk.
//
// The limit of one running rank's log, for a worker with `num_slots` slots whose state is on a disk of
// `disk_bytes`.
int64_t MostLogBytes(int64_t disk_bytes, size_t num_slots);
// The limit of all logs of ended attempts together.
int64_t MostEndedLogBytes(int64_t disk_bytes);

// The size of the file system that has `folder`.
absl::StatusOr<int64_t> DiskBytes(const std::string& folder);

// If the log uses more than `most_bytes` of disk, frees the space of its oldest part, keeps the newest
// most_bytes / 2, and returns the number of bytes freed. The rank, which appends to the file, and readers can
// go on: the file keeps its length and begins with a hole (log_reader.h). If the file system has no holes,
// the file is truncated and its newest bytes are written again; output written at that moment may come before
// them.
absl::StatusOr<int64_t> TrimLog(const std::string& path, int64_t most_bytes);

// Below its state directory a worker has folders KIND/JOB/attempt-N for each attempt.
std::string AttemptPath(const AttemptKey& attempt);  // "JOB/attempt-N"

// The attempts that have a folder below `root`; empty if that does not exist.
absl::StatusOr<std::set<AttemptKey>> ListAttempts(platform::Files& files, const std::string& root);

// Removes the attempt's folder below `root`, and the job's folder if it is then empty.
absl::Status RemoveAttempt(platform::Files& files, const std::string& root, const AttemptKey& attempt);

// Limits on the logs of attempts that have ended.
struct LogLimits {
  size_t attempts = 200;
  int64_t bytes = int64_t{4} << 30;

  std::string ToText() const;  // "its newest 200 ended attempts, 4096 MiB at most"
};

// Removes the oldest logs of attempts below `root` until the limits hold. Keeps the newest one in any case.
// Logs of `needed` attempts are kept and do not count. A failure is logged; the next call tries again.
void PruneLogs(platform::Files& files, const std::string& root, const std::set<AttemptKey>& needed,
               const LogLimits& limits);

}  // namespace tandem::worker
