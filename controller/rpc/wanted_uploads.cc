// SPDX-License-Identifier: Apache-2.0
#include "controller/rpc/wanted_uploads.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "controller/core/state.h"
#include "platform/counted_text.h"
#include "proto/names.h"

namespace tandem::controller {
namespace {

constexpr int kMostProfiledSteps = 16;

UploadRelay::Wanted& AddSlot(const v1::Job& job, int attempt, const v1::RankSlot& slot,
                             std::vector<UploadRelay::Wanted>& wanted) {
  UploadRelay::Wanted& want = wanted.emplace_back();
  want.slot = slot;
  want.request.mutable_id()->set_job_id(job.id());
  want.request.mutable_id()->set_attempt(attempt);
  return want;
}

}  // namespace

absl::StatusOr<std::vector<UploadRelay::Wanted>> WantedLogs(const v1::Job& job,
                                                            const v1::LogRequest& request) {
  if (request.attempt() < 0 || request.tail_lines() < 0) {
    return absl::InvalidArgumentError("attempt, tail_lines: must not be negative");
  }
  const int number = request.attempt() == 0 ? job.attempt() : request.attempt();
  std::vector<UploadRelay::Wanted> wanted;
  for (const v1::Attempt& attempt : job.attempts()) {
    if (attempt.number() != number) {
      continue;
    }
    for (const v1::RankSlot& slot : attempt.slots()) {
      if (!request.has_rank() || request.rank() == slot.rank()) {
        UploadRelay::Wanted& want = AddSlot(job, number, slot, wanted);
        want.request.set_tail_lines(request.tail_lines());
        want.request.set_follow(request.follow());
      }
    }
  }
  if (number == 0) {
    return absl::FailedPreconditionError(
        absl::StrCat("job ", job.name(), " has not been placed yet: ", proto::ValueName(job.state()), ", ",
                     job.reason(), ": ", job.message()));
  }
  if (wanted.empty()) {
    return absl::NotFoundError(
        absl::StrCat("job ", job.name(), " has no ",
                     request.has_rank() ? absl::StrCat("rank ", request.rank(), " in attempt ", number)
                                        : absl::StrCat("attempt ", number),
                     "; it has ", platform::CountedText(job.attempts_size(), "attempt"), " of ",
                     platform::CountedText(job.resolved().parallelism().ranks(), "rank")));
  }
  return wanted;
}

absl::StatusOr<std::vector<UploadRelay::Wanted>> WantedProfiles(const v1::Job& job,
                                                                const v1::ProfileRequest& request,
                                                                uint64_t id) {
  if (request.steps() < 1 || request.steps() > kMostProfiledSteps) {
    return absl::InvalidArgumentError(
        absl::StrCat("steps: ", request.steps(), "; allowed are 1 to ", kMostProfiledSteps));
  }
  if (job.state() != v1::JOB_STATE_RUNNING || job.attempts().empty()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "job ", job.name(), " (", job.id(), ") is not running: ", proto::ValueName(job.state()),
        IsTerminal(job.state()) ? "; only a running job can be profiled" : "; try again when it runs"));
  }
  std::vector<UploadRelay::Wanted> wanted;
  const v1::Attempt& attempt = job.attempts(job.attempts_size() - 1);
  for (const v1::RankSlot& slot : attempt.slots()) {
    v1::ProfileSteps& profile = *AddSlot(job, attempt.number(), slot, wanted).request.mutable_profile();
    profile.set_id(id);
    profile.set_steps(request.steps());
    profile.set_serialized(request.serialized());
  }
  return wanted;
}

}  // namespace tandem::controller
