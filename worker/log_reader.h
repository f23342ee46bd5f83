// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace tandem::worker {

// Reads a log while its rank appends to it and its worker drops the oldest part (log_limit.h). In place of a
// dropped part it returns a line that says so, and then continues at the start of a line. Not thread-safe.
class LogReader {
 public:
  // Starts at the last `lines` lines of `fd`, or with 0 at the beginning of the file. `fd` must outlive the
  // reader.
  static absl::StatusOr<LogReader> Open(int fd, int64_t lines);

  // Sets `data` to the next bytes: at most `most`, or the reader's own line about a dropped part. Empty at
  // the present end of the log.
  absl::Status Read(size_t most, std::string& data);

 private:
  LogReader(int fd, int64_t offset) : fd_(fd), offset_(offset) {}

  // Skips a dropped part at offset_ and returns its number of bytes.
  absl::StatusOr<int64_t> Dropped();

  int fd_;
  int64_t offset_;
  bool in_dropped_line_ = false;  // the rest of the line at offset_ is to be skipped
};

}  // namespace tandem::worker
