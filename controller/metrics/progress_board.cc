// SPDX-License-Identifier: Apache-2.0
#include "controller/metrics/progress_board.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "controller/core/placement.h"
#include "controller/core/progress.h"
#include "proto/reasons.h"
#include "proto/time.h"

namespace tandem::controller {
namespace {

// Describes the head of the queue. The rows of the jobs behind it do not name it, because each job that
// starts would change all of them.
std::string HeadOf(const State& state) {
  for (const auto& [seq, id] : state.jobs.queue()) {
    const v1::Job& job = state.jobs.at(id).job;
    if (job.reason() != proto::ReasonCode("BeyondCapacity")) {
      return absl::StrCat("waits behind job ", job.name(), " (", id, "), which ",
                          job.message().empty() ? "is looked at next" : job.message());
    }
  }
  return "";
}

}  // namespace

void ProgressBoard::Look(const State& state) {
  const absl::Time now = clock_.Now();
  std::map<std::string, Entry> jobs;
  for (const auto& [id, entry] : state.jobs) {
    if (std::optional<v1::Progress> progress = ProgressOf(state, entry.job, now)) {
      jobs[id] = {.name = entry.job.name(), .progress = *std::move(progress)};
    }
  }
  std::string head = HeadOf(state);
  const absl::MutexLock lock(&mu_);
  head_ = std::move(head);
  looked_ = now;
  jobs_ = std::move(jobs);
}

std::optional<v1::Progress> ProgressBoard::Find(const std::string& job_id) const {
  const absl::MutexLock lock(&mu_);
  const auto it = jobs_.find(job_id);
  return it == jobs_.end() ? std::nullopt : std::optional(AsOfNow(it->second.progress));
}

std::map<std::string, v1::Progress> ProgressBoard::ByName() const {
  std::map<std::string, v1::Progress> out;
  const absl::MutexLock lock(&mu_);
  for (const auto& [id, entry] : jobs_) {
    out[entry.name] = AsOfNow(entry.progress);
  }
  return out;
}

v1::Progress ProgressBoard::AsOfNow(const v1::Progress& then) const {
  v1::Progress out = then;
  *out.mutable_age() = proto::ToProto(proto::FromProto(then.age()) + (clock_.Now() - looked_));
  return out;
}

void ProgressBoard::Fill(v1::Job& job) const {
  if (std::optional<v1::Progress> progress = Find(job.id()); progress && HasRanks(job.state())) {
    *job.mutable_progress() = *std::move(progress);
  }
  if (job.state() == v1::JOB_STATE_QUEUED && job.reason() == proto::ReasonCode("BehindOthers")) {
    const absl::MutexLock lock(&mu_);
    if (!head_.empty()) {
      job.set_message(head_);
    }
  }
}

}  // namespace tandem::controller
