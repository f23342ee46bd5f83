// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace tandem::worker {

// Reads a log while its rank appends to it and its worker drops the oldest part (log_limit.h). In place of
// what was dropped comes a line that says so, then whole lines. Not thread-safe.
class LogReader {
 public:
  // Reads `fd`, which outlives the reader, from the last `lines` lines on; 0 lines: from its start.
  static absl::StatusOr<LogReader> Open(int fd, int64_t lines);

  // The next bytes, at most `most` or one line of this reader's own; none at the end of what there is now.
  absl::Status Read(size_t most, std::string& data);

 private:
  LogReader(int fd, int64_t offset) : fd_(fd), offset_(offset) {}

  // The number of bytes at offset_ that were dropped.
  absl::StatusOr<int64_t> Dropped();

  int fd_;
  int64_t offset_;
  bool in_dropped_line_ = false;  // its end is still to come
};

}  // namespace tandem::worker
