// SPDX-License-Identifier: Apache-2.0
#include "controller/core/checkpoint_request.h"

#include "absl/strings/str_cat.h"
#include "controller/core/new_event.h"
#include "proto/names.h"
#include "proto/reasons.h"

namespace tandem::controller {

const CheckpointWanted* WantedOf(const JobEntry& entry) {
  const bool wanted = entry.runtime.has_checkpoint_wanted() &&
                      entry.runtime.checkpoint_wanted().attempt() == entry.job.attempt();
  return wanted ? &entry.runtime.checkpoint_wanted() : nullptr;
}

Decision NoLiveJob(const std::string& name) {
  return {.status = absl::NotFoundError(absl::StrCat("no live job ", name))};
}

Decision RequestCheckpoint(const JobEntry& entry, const v1::CheckpointRequested& wanted,
                           const std::string& actor, absl::Time now) {
  const v1::Job& job = entry.job;
  if (job.resolved().checkpoint().directory().empty()) {
    return {.status = absl::FailedPreconditionError(absl::StrCat(
                "job ", job.name(), " (", job.id(),
                ") has no checkpoint.directory, so there is nowhere to save; set it in the job file")),
            .job_id = job.id()};
  }
  const CheckpointWanted* before = WantedOf(entry);
  if (before != nullptr && (before->stop() || !wanted.stop())) {
    return {.job_id = job.id()};
  }
  v1::Event event =
      EventOf(job, job.state(), now, actor, proto::ReasonCode("CheckpointRequested"),
              wanted.stop() ? absl::StrCat("a checkpoint, then the end of the job: ", wanted.reason())
                            : "a checkpoint after the step that runs");
  event.set_step(job.last_step());
  *event.mutable_checkpoint_requested() = wanted;
  return {.events = {std::move(event)}, .job_id = job.id()};
}

Decision DecideAskCheckpoint(const State& state, const AskCheckpoint& ask, absl::Time now) {
  const JobEntry* entry = FindLive(state, ask.job);
  if (entry == nullptr) {
    return NoLiveJob(ask.job);
  }
  if (entry->job.state() != v1::JOB_STATE_RUNNING) {
    return {.status = absl::FailedPreconditionError(absl::StrCat(
                "job ", entry->job.name(), " (", entry->job.id(), ") is not running: ",
                proto::ValueName(entry->job.state()), "; only a running job can save a checkpoint")),
            .job_id = entry->job.id()};
  }
  return RequestCheckpoint(*entry, {}, ask.actor, now);
}

std::optional<v1::Event> AnswerOf(const State& state, const JobEntry& entry, absl::Time now) {
  const CheckpointWanted* wanted = WantedOf(entry);
  if (wanted == nullptr || wanted->stop()) {
    return std::nullopt;
  }
  for (const std::string& worker : WorkersOf(entry.job)) {
    const v1::AttemptStatus* status = StatusOf(state, worker, CurrentAttempt(entry.job));
    if (status == nullptr || status->request_done() < static_cast<uint64_t>(wanted->request())) {
      continue;
    }
    const std::string& error = status->request_error();
    v1::Event event =
        EventOf(entry.job, entry.job.state(), now, worker,
                error.empty() ? proto::ReasonCode("CheckpointDone") : proto::ReasonCode("CheckpointNotDone"),
                error.empty() ? "the checkpoint that was asked for is saved" : error);
    event.set_step(entry.job.last_step());
    event.mutable_checkpoint_answered()->set_request(wanted->request());
    event.mutable_checkpoint_answered()->set_error(error);
    return event;
  }
  return std::nullopt;
}

}  // namespace tandem::controller
