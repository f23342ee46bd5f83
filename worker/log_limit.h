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

// How much of its disk a worker gives to the output of ranks: at most half of a small disk, a quarter for
// running ranks and a quarter for attempts that have ended.
//
// The most bytes that the log of one running rank keeps, of a worker with that many slots whose state lies on
// a disk of `disk_bytes`.
int64_t MostLogBytes(int64_t disk_bytes, size_t num_slots);
// The same of all logs of ended attempts.
int64_t MostEndedLogBytes(int64_t disk_bytes);

// The size of the file system on which `folder` lies.
absl::StatusOr<int64_t> DiskBytes(const std::string& folder);

// If the log takes more than `most_bytes` of its disk, gives the oldest part back and keeps the newest half
// of `most_bytes`; returns the bytes that were given back. The rank, which has the file open to append, and
// its readers continue: the file keeps its length, and begins with a hole (log_reader.h). If the file system
// has no holes, the file is emptied but for its newest bytes; output of that moment may come before them.
absl::StatusOr<int64_t> TrimLog(const std::string& path, int64_t most_bytes);

// Below its state directory a worker keeps a folder for each attempt: KIND/JOB/attempt-N.
std::string AttemptPath(const AttemptKey& attempt);  // "JOB/attempt-N"

// The attempts that have a folder below `root`; empty if that does not exist.
absl::StatusOr<std::set<AttemptKey>> ListAttempts(platform::Files& files, const std::string& root);

// Removes the attempt's folder below `root`, and the job's folder if that was its last one.
absl::Status RemoveAttempt(platform::Files& files, const std::string& root, const AttemptKey& attempt);

// Limits on the logs of attempts that have ended.
struct LogLimits {
  size_t attempts = 200;
  int64_t bytes = int64_t{4} << 30;

  std::string ToText() const;  // "its newest 200 ended attempts, 4096 MiB at most"
};

// Removes logs below `root`, those written last being kept: as many as the limits allow, the newest one in
// any case, and those of `needed`, which do not count. What cannot be removed is logged and tried again next
// time.
void PruneLogs(platform::Files& files, const std::string& root, const std::set<AttemptKey>& needed,
               const LogLimits& limits);

}  // namespace tandem::worker
