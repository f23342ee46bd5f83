// SPDX-License-Identifier: Apache-2.0
#include "controller/store/norm_ring.h"

#include <utility>

#include "controller/store/rows.h"
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

// From the index alone: the table has a page for each norms, of which a cold disk takes seconds to read all.
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
  find_.Bind(job).Bind(report.step());
  int64_t old_id = 0;
  int64_t old_bytes = 0;
  bool newer = false;
  if (find_.Next()) {
    old_id = find_.Int(0);
    newer = find_.Int(1) > report.attempt();
    old_bytes = find_.Int(2);
  }
  if (absl::Status status = find_.Finish(); !status.ok() || newer) {
    return status;
  }
  if (old_id != 0) {
    TANDEM_RETURN_IF_ERROR(Delete(old_id, job, old_bytes));
  }
  const std::string packed = report.norms().SerializeAsString();
  const int64_t bytes = static_cast<int64_t>(packed.size());
  insert_.Bind(job).Bind(report.step()).Bind(report.attempt()).Bind(bytes).BindBlob(packed);
  TANDEM_RETURN_IF_ERROR(insert_.Run());
  bytes_of_job_[job] += bytes;
  bytes_ += bytes;
  return Evict(job);
}

absl::Status NormRing::Delete(int64_t id, const std::string& job, int64_t bytes) {
  delete_.Bind(id);
  TANDEM_RETURN_IF_ERROR(delete_.Run());
  bytes_of_job_[job] -= bytes;
  bytes_ -= bytes;
  return absl::OkStatus();
}

absl::Status NormRing::Evict(const std::string& job) {
  while (bytes_of_job_[job] > max_bytes_of_a_job_ || bytes_ > max_bytes_) {
    const bool own = bytes_of_job_[job] > max_bytes_of_a_job_;
    Statement& oldest = own ? oldest_of_job_ : oldest_;
    if (own) {
      oldest.Bind(job);
    }
    if (!oldest.Next()) {
      return oldest.Finish();
    }
    const int64_t id = oldest.Int(0);
    const std::string owner = oldest.Bytes(1);
    const int64_t bytes = oldest.Int(2);
    absl::Status status = oldest.Finish();
    if (status.ok()) {
      status = Delete(id, owner, bytes);
    }
    TANDEM_RETURN_IF_ERROR(status);
  }
  return absl::OkStatus();
}

NormReader::NormReader(Database& db)
    : get_(db.Prepare("SELECT attempt, data FROM norms WHERE job = ? AND step = ?")),
      first_(db.Prepare(
          "SELECT step FROM norms WHERE job = ? AND step >= ? AND step <= ? ORDER BY step LIMIT 1")) {}

absl::Status NormReader::AddTo(const std::string& job, v1::StepReport& report) {
  using OfAttempt = std::pair<int64_t, v1::Norms>;
  get_.Bind(job).Bind(report.step());
  absl::StatusOr<std::optional<OfAttempt>> found =
      ReadRow<OfAttempt>(get_, UnreadableReport(), [](const Statement& row, OfAttempt& out) {
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
  first_.Bind(job).Bind(first).Bind(last);
  std::optional<int64_t> step;
  if (first_.Next()) {
    step = first_.Int(0);
  }
  TANDEM_RETURN_IF_ERROR(first_.Finish());
  return step;
}

}  // namespace tandem::controller
