#include "controller/metrics/progress_board.h"

#include <utility>

#include "controller/core/progress.h"
#include "proto/time.h"

namespace tandem::controller {

void ProgressBoard::Look(const State& state) {
  const absl::Time now = clock_.Now();
  std::map<std::string, v1::Progress> jobs;
  for (const auto& [id, entry] : state.jobs) {
    if (std::optional<v1::Progress> progress = ProgressOf(state, entry.job, now)) {
      jobs[id] = *std::move(progress);
    }
  }
  const absl::MutexLock lock(&mu_);
  looked_ = now;
  jobs_ = std::move(jobs);
}

std::optional<v1::Progress> ProgressBoard::Find(const std::string& job_id) const {
  const absl::MutexLock lock(&mu_);
  const auto it = jobs_.find(job_id);
  if (it == jobs_.end()) {
    return std::nullopt;
  }
  v1::Progress out = it->second;
  *out.mutable_age() = proto::ToProto(proto::FromProto(out.age()) + (clock_.Now() - looked_));
  return out;
}

void ProgressBoard::Fill(v1::Job& job) const {
  if (std::optional<v1::Progress> progress = Find(job.id()); progress && HasRanks(job.state())) {
    *job.mutable_progress() = *std::move(progress);
  }
}

}  // namespace tandem::controller
