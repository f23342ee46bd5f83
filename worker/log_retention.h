// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <set>
#include <string>

#include "platform/files.h"
#include "worker/state.h"

namespace tandem::worker {

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
