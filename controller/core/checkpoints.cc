// SPDX-License-Identifier: Apache-2.0
#include "controller/core/checkpoints.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "controller/core/new_event.h"
#include "proto/names.h"
#include "proto/reasons.h"
#include "proto/time.h"

namespace tandem::controller {
namespace {

// Without a limit a worker could send warnings forever.
constexpr int kMostWarningsOfAnAttempt = 1000;

std::string ReasonOf(v1::CheckpointProblem problem) {
  static const auto& reasons = *new std::map<v1::CheckpointProblem, std::string>{
      {v1::CHECKPOINT_PROBLEM_SAVE_FAILED, proto::ReasonCode("CheckpointFailed")},
      {v1::CHECKPOINT_PROBLEM_PASSED_OVER, proto::ReasonCode("CheckpointPassedOver")},
      {v1::CHECKPOINT_PROBLEM_OTHER_SEED, proto::ReasonCode("ResumedWithOtherSeed")},
      {v1::CHECKPOINT_PROBLEM_OTHER_DATA, proto::ReasonCode("ResumedWithOtherData")},
      {v1::CHECKPOINT_PROBLEM_OTHER_TRAINING, proto::ReasonCode("ResumedWithOtherTraining")},
      {v1::CHECKPOINT_PROBLEM_NOT_REMOVED, proto::ReasonCode("CheckpointNotRemoved")}};
  const auto found = reasons.find(problem);
  return found == reasons.end() ? proto::ReasonCode("CheckpointWarning") : found->second;
}

// Returns when the worker got the notice from its rank.
absl::Time NoticedAt(const State& state, const v1::Job& job, const CheckpointNoticed& in, absl::Time now) {
  const auto worker = state.workers.find(in.worker);
  if (!in.notice.has_at() || worker == state.workers.end()) {
    return now;
  }
  return std::max(proto::FromProto(in.notice.at()) - worker->second.clock_ahead,
                  proto::FromProto(Current(job).started()));
}

// `more`: how many of its warnings are decided but not applied yet.
Decision DecideWarning(const State& state, const JobEntry& entry, const CheckpointNoticed& in, int more,
                       absl::Time now) {
  const bool is_first = entry.runtime.warning_attempt() != in.notice.id().attempt();
  if (!is_first && entry.runtime.warning_number() >= in.notice.number()) {
    return {};  // sent again after a lost connection
  }
  const int before = (is_first ? 0 : entry.runtime.num_warnings()) + more;
  if (before > kMostWarningsOfAnAttempt) {
    return {};  // the last event says so
  }
  v1::Event event;
  const auto fill = [&](std::string reason, const auto& warning) {
    event = EventOf(entry.job, entry.job.state(), now, in.worker, std::move(reason), warning.message());
    event.set_step(warning.step());
  };
  if (in.notice.training().is_data()) {
    if (entry.job.data() == in.notice.training().message()) {
      return {};  // it repeats one of an earlier attempt, or was sent again
    }
    fill(proto::ReasonCode("DataRead"), in.notice.training());
    *event.mutable_training_warning() = in.notice.training();
  } else if (in.notice.has_training()) {
    const v1::TrainingWarning& warning = in.notice.training();
    fill(warning.is_spike()        ? proto::ReasonCode("GradientSpike")
         : warning.is_loss_spike() ? proto::ReasonCode("LossSpike")
                                   : proto::ReasonCode("NonfiniteGradients"),
         warning);
    *event.mutable_training_warning() = in.notice.training();
  } else {
    fill(ReasonOf(in.notice.warning().problem()), in.notice.warning());
    *event.mutable_checkpoint_warning() = in.notice.warning();
  }
  if (before == kMostWarningsOfAnAttempt) {
    event.set_message(absl::StrCat("attempt ", in.notice.id().attempt(), " has warned ",
                                   kMostWarningsOfAnAttempt,
                                   " times: neither this warning nor later ones of it are kept"));
    const bool is_training = event.has_training_warning();
    (is_training ? *event.mutable_training_warning()->mutable_message()
                 : *event.mutable_checkpoint_warning()->mutable_message()) = event.message();
  }
  event.set_notice_number(in.notice.number());
  SetHappened(NoticedAt(state, entry.job, in, now), now, event);
  return {.events = {std::move(event)}};
}

}  // namespace

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

Decision DecideNotice(const State& state, const CheckpointNoticed& in, absl::Time now, int num_undecided) {
  const AttemptKey key = KeyOf(in.notice.id());
  if (!RunsOn(state, key, in.worker)) {
    return {};  // it is fenced: of an older attempt, or of another worker's ranks
  }
  const JobEntry& entry = state.jobs.at(key.job);
  if (in.notice.has_warning() || in.notice.has_training()) {
    return DecideWarning(state, entry, in, num_undecided, now);
  }
  const int64_t step = in.notice.committed().step();
  if (entry.runtime.checkpoint_attempt() == key.attempt && entry.runtime.checkpoint_step() >= step) {
    return {};  // sent again after a lost connection
  }
  if (step < 0 || step > entry.job.resolved().training().steps()) {
    return {};  // no rank of ours sends such a step, and a huge one would hide all later checkpoints
  }
  v1::Event event = EventOf(entry.job, entry.job.state(), now, in.worker,
                            proto::ReasonCode("CheckpointCommitted"), in.notice.committed().path());
  event.set_step(step);
  *event.mutable_checkpoint() = in.notice.committed();
  SetHappened(NoticedAt(state, entry.job, in, now), now, event);
  return {.events = {std::move(event)}};
}

}  // namespace tandem::controller
