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
  // `db` outlives it.
  explicit NormReader(Database& db);

  // Sets report.norms to those of its step, if they are here and of its attempt.
  absl::Status AddTo(const std::string& job, v1::StepReport& report);

  // The first of these steps that has norms; nullopt: none has.
  absl::StatusOr<std::optional<int64_t>> FirstStep(const std::string& job, int64_t first, int64_t last);

 private:
  Statement get_, first_;
};

// Every job's norms of its newest steps, in the table `norms` of history.db, keyed (job, step); the higher
// attempt wins. Where a job's norms, or those of all jobs, need more bytes than they may, the oldest go.
// Writes are a part of the caller's transaction: after a rollback call Count. Not thread-safe.
class NormRing {
 public:
  // `db` outlives it.
  NormRing(Database& db, int64_t max_bytes_of_a_job, int64_t max_bytes);

  // How many bytes there are.
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

// DataLoss: of a row that does not parse.
absl::Status UnreadableReport();

}  // namespace tandem::controller
