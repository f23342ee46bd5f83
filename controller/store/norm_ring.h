// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "controller/store/sqlite.h"
#include "tandem/v1/report.pb.h"

namespace tandem::controller {

// Reads the norms that a NormRing has written, over a connection of its own or the ring's. Not thread-safe.
class NormReader {
 public:
  // `db` must outlive it.
  explicit NormReader(Database& db);

  // Sets report.norms to the stored norms of its step, if they are of the same attempt.
  absl::Status AddTo(const std::string& job, v1::StepReport& report);

  // Returns the first of the steps first to last that has norms; nullopt if none has.
  absl::StatusOr<std::optional<int64_t>> FirstStep(const std::string& job, int64_t first, int64_t last);

 private:
  Statement get_, first_;
};

// The norms of the newest steps of every job, in the table `norms` of history.db, keyed (job, step); the
// higher attempt wins. When the norms of a job, or of all jobs, exceed their limit in bytes, the oldest are
// deleted. Writes are part of the caller's transaction; call Count after a rollback. Not thread-safe.
class NormRing {
 public:
  // `db` must outlive it.
  NormRing(Database& db, int64_t max_bytes_of_a_job, int64_t max_bytes);

  // Computes bytes() from the table. Call before anything else, too.
  absl::Status Count();

  // Requires report.has_norms().
  absl::Status Insert(const std::string& job, const v1::StepReport& report);

  int64_t bytes() const { return bytes_; }

 private:
  absl::Status Delete(int64_t id, const std::string& job, int64_t bytes);
  absl::Status Evict(const std::string& job);

  Database& db_;
  const int64_t max_bytes_of_a_job_;
  const int64_t max_bytes_;
  Statement find_, insert_, delete_, oldest_of_job_, oldest_;
  std::map<std::string, int64_t> bytes_of_job_;
  int64_t bytes_ = 0;
};

// Makes the error of a row that does not parse, DataLoss.
absl::Status UnreadableReport();

}  // namespace tandem::controller
