// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "platform/regular_file.h"

namespace tandem::controller {

// The number of commits of a database, in a file beside it: one line "tandem-commits 1 COUNT DIGEST" of a
// fixed length (COUNT in 20 digits, DIGEST the XXH3-128 of what precedes it). It is written after a commit
// and is not synced, as the database's log is not: a crash of the machine may take commits from either. Not
// thread-safe.
class CommitCount {
 public:
  // Reads the number; nullopt if there is no such file. DataLoss if the file is damaged.
  static absl::StatusOr<std::optional<int64_t>> Read(const std::string& path);

  // Opens the file, and creates it if there is none. Call before Write.
  absl::Status Open(const std::string& path);
  absl::Status Write(int64_t count);

  int64_t count() const { return count_; }

 private:
  std::string path_;
  platform::Descriptor file_;
  int64_t count_ = 0;  // of the last Write
};

}  // namespace tandem::controller
