// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

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

}  // namespace tandem::worker
