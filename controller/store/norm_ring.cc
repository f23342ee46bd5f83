// SPDX-License-Identifier: Apache-2.0
#include "controller/store/norm_ring.h"

#include <utility>

#include "controller/store/sqlite.h"
#include "platform/status_macros.h"

namespace tandem::controller {

absl::Status UnreadableReport() {
  return absl::DataLossError("history.db holds a report that cannot be read");
}

NormRing::NormRing(Database& db, int64_t max_bytes_of_a_job, int64_t max_bytes)
    : db_(db),
      max_bytes_of_a_job_(max_bytes_of_a_job),
      max_bytes_(max_bytes),
      find_(db.Prepare("SELECT id, attempt, bytes FROM norms WHERE job = ? AND step = ?")),
      insert_(db.Prepare("INSERT INTO norms (job, step, attempt, bytes, data) VALUES (?, ?, ?, ?, ?)")),
      delete_(db.Prepare("DELETE FROM norms WHERE id = ?")),
      oldest_of_job_(db.Prepare("SELECT id, job, bytes FROM norms WHERE job = ? ORDER BY id LIMIT 1")),
      oldest_(db.Prepare("SELECT id, job, bytes FROM norms ORDER BY id LIMIT 1")) {}

// Reads the index alone: the table has at least a page for each row, and a cold disk takes seconds to read
// them all.
absl::Status NormRing::Count() {
  bytes_of_job_.clear();
  bytes_ = 0;
  Statement sums = db_.Prepare("SELECT job, sum(bytes) FROM norms GROUP BY job");
  while (sums.Next()) {
    bytes_of_job_[sums.Bytes(0)] = sums.Int(1);
    bytes_ += sums.Int(1);
  }
  return sums.Finish();
}

absl::Status NormRing::Insert(const std::string& job, const v1::StepReport& report) {
  int64_t old_id = 0;
  int64_t old_bytes = 0;
  bool newer = false;
  TANDEM_RETURN_IF_ERROR(TakeFirst(find_.Bind(job, report.step()), [&](const Statement& row) {
    old_id = row.Int(0);
    newer = row.Int(1) > report.attempt();
    old_bytes = row.Int(2);
  }));
  if (newer) {
    return absl::OkStatus();
  }
  if (old_id != 0) {
    TANDEM_RETURN_IF_ERROR(Delete(old_id, job, old_bytes));
  }
  const std::string packed = report.norms().SerializeAsString();
  const int64_t bytes = static_cast<int64_t>(packed.size());
  TANDEM_RETURN_IF_ERROR(insert_.Run(job, report.step(), report.attempt(), bytes, Blob{packed}));
  bytes_of_job_[job] += bytes;
  bytes_ += bytes;
  return Evict(job);
}

absl::Status NormRing::Delete(int64_t id, const std::string& job, int64_t bytes) {
  TANDEM_RETURN_IF_ERROR(delete_.Run(id));
  bytes_of_job_[job] -= bytes;
  bytes_ -= bytes;
  return absl::OkStatus();
}

absl::Status NormRing::Evict(const std::string& job) {
  while (bytes_of_job_[job] > max_bytes_of_a_job_ || bytes_ > max_bytes_) {
    const bool own = bytes_of_job_[job] > max_bytes_of_a_job_;
    std::optional<int64_t> id;
    std::string owner;
    int64_t bytes = 0;
    TANDEM_RETURN_IF_ERROR(TakeFirst(own ? oldest_of_job_.Bind(job) : oldest_, [&](const Statement& row) {
      id = row.Int(0);
      owner = row.Bytes(1);
      bytes = row.Int(2);
    }));
    if (!id.has_value()) {
      return absl::OkStatus();
    }
    TANDEM_RETURN_IF_ERROR(Delete(*id, owner, bytes));
  }
  return absl::OkStatus();
}

NormReader::NormReader(Database& db)
    : get_(db.Prepare("SELECT attempt, data FROM norms WHERE job = ? AND step = ?")),
      first_(db.Prepare(
          "SELECT step FROM norms WHERE job = ? AND step >= ? AND step <= ? ORDER BY step LIMIT 1")) {}

absl::Status NormReader::AddTo(const std::string& job, v1::StepReport& report) {
  using OfAttempt = std::pair<int64_t, v1::Norms>;
  absl::StatusOr<std::optional<OfAttempt>> found = ReadRow<OfAttempt>(
      get_.Bind(job, report.step()), UnreadableReport(), [](const Statement& row, OfAttempt& out) {
        out.first = row.Int(0);
        return out.second.ParseFromString(row.Bytes(1));
      });
  if (found.ok() && found->has_value() && (*found)->first == report.attempt()) {
    *report.mutable_norms() = std::move((*found)->second);
  }
  return found.status();
}

absl::StatusOr<std::optional<int64_t>> NormReader::FirstStep(const std::string& job, int64_t first,
                                                             int64_t last) {
  std::optional<int64_t> step;
  TANDEM_RETURN_IF_ERROR(
      TakeFirst(first_.Bind(job, first, last), [&](const Statement& row) { step = row.Int(0); }));
  return step;
}

}  // namespace tandem::controller
