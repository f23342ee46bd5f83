// SPDX-License-Identifier: Apache-2.0
#include "controller/core/notices.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "controller/core/new_event.h"
#include "proto/reasons.h"
#include "proto/time.h"

namespace tandem::controller {
namespace {

// More than a job has use for; the worker of an attempt may send them without end.
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

// When the worker heard of it from its rank.
absl::Time NoticedAt(const State& state, const v1::Job& job, const CheckpointNoticed& in, absl::Time now) {
  const auto worker = state.workers.find(in.worker);
  if (!in.notice.has_at() || worker == state.workers.end()) {
    return now;
  }
  return std::max(proto::FromProto(in.notice.at()) - worker->second.clock_ahead,
                  proto::FromProto(Current(job).started()));
}

// `more`: of its warnings, those that are decided and not applied yet.
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
      return {};  // of a later attempt, or of a worker that has not heard that it is known
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

Decision DecideNotice(const State& state, const CheckpointNoticed& in, absl::Time now, int num_undecided) {
  const AttemptKey key = KeyOf(in.notice.id());
  if (!RunsOn(state, key, in.worker)) {
    return {};  // of an older attempt: fenced; or of another worker's
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
    return {};  // no rank that Tandem started says so; what rises has an end then
  }
  v1::Event event = EventOf(entry.job, entry.job.state(), now, in.worker,
                            proto::ReasonCode("CheckpointCommitted"), in.notice.committed().path());
  event.set_step(step);
  *event.mutable_checkpoint() = in.notice.committed();
  SetHappened(NoticedAt(state, entry.job, in, now), now, event);
  return {.events = {std::move(event)}};
}

}  // namespace tandem::controller
