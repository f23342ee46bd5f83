// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <iterator>
#include <utility>

#include "controller/core/decide.h"
#include "platform/check.h"

namespace tandem::controller {
namespace {

// The kind of an event is that of its fact, or if it has none, that of the state that it leads to.
constexpr std::pair<v1::Event::FactCase, const char*> kFactKinds[] = {
    {v1::Event::kSubmitted, "submitted"},
    {v1::Event::kCheckpoint, "checkpoint"},
    {v1::Event::kCheckpointWarning, "checkpoint_warning"},
    {v1::Event::kCheckpointRequested, "checkpoint_requested"},
    {v1::Event::kCheckpointAnswered, "checkpoint_answered"},
    {v1::Event::kTrainingWarning, "training_warning"},
    {v1::Event::kWorker, "worker"}};
constexpr std::pair<v1::JobState, const char*> kStateKinds[] = {
    {v1::JOB_STATE_QUEUED, "waiting"},    {v1::JOB_STATE_ADMITTED, "admitted"},
    {v1::JOB_STATE_STARTING, "starting"}, {v1::JOB_STATE_RUNNING, "running"},
    {v1::JOB_STATE_STOPPING, "stopping"}, {v1::JOB_STATE_SUCCEEDED, "finished"},
    {v1::JOB_STATE_FAILED, "finished"},   {v1::JOB_STATE_CANCELLED, "finished"}};

void ApplyTransition(const v1::Event& event, JobEntry& entry) {
  v1::Job& job = entry.job;
  job.set_state(event.to());
  job.set_reason(event.reason());
  job.set_message(event.message());
  if (event.step() > job.last_step()) {
    job.set_last_step(event.step());
  }
  switch (event.fact_case()) {
    case v1::Event::kAdmitted:
      if (job.attempt() != event.admitted().number()) {
        *job.add_attempts() = event.admitted();
        job.set_attempt(event.admitted().number());
        job.clear_cause();
        if (job.has_checkpoints()) {
          job.mutable_checkpoints()->clear_resume();
        }
        entry.runtime.set_accepted(false);
      } else {
        *job.mutable_attempts(job.attempts_size() - 1) = event.admitted();
      }
      break;
    case v1::Event::kFailed:
      *job.mutable_cause() = event.failed();
      break;
    default:
      break;
  }
  if (event.to() == v1::JOB_STATE_STARTING) {
    entry.runtime.set_accepted(true);
  }
  if (event.to() == v1::JOB_STATE_STOPPING) {
    job.set_outcome(!event.has_failed()                                      ? v1::JOB_STATE_SUCCEEDED
                    : event.failed().class_() == v1::FAILURE_CLASS_REQUESTED ? v1::JOB_STATE_CANCELLED
                                                                             : v1::JOB_STATE_FAILED);
    if (event.from() != v1::JOB_STATE_STOPPING) {
      *entry.runtime.mutable_stopping_since() = event.has_decided() ? event.decided() : event.time();
    }
  }
  if (IsTerminal(event.to())) {
    job.set_outcome(event.to());
    *job.mutable_ended() = event.time();
    if (job.attempts_size() > 0) {
      v1::Attempt& attempt = *job.mutable_attempts(job.attempts_size() - 1);
      *attempt.mutable_ended() = event.time();
      if (job.has_cause()) {
        *attempt.mutable_cause() = job.cause();
      }
    }
  }
}

void ApplyWarning(const v1::Event& event, JobEntry& entry) {
  constexpr int kMostOfResume = 9;  // the rest are in the log of events
  const bool first = entry.runtime.warning_attempt() != event.attempt();
  entry.runtime.set_num_warnings(first ? 1 : entry.runtime.num_warnings() + 1);
  entry.runtime.set_warning_number(event.notice_number());
  entry.runtime.set_warning_attempt(event.attempt());
  if (event.training_warning().is_data()) {
    entry.job.set_data(event.training_warning().message());
  }
  if (!event.has_checkpoint_warning()) {
    return;
  }
  v1::CheckpointRecord& record = *entry.job.mutable_checkpoints();
  const v1::CheckpointWarning& warning = event.checkpoint_warning();
  switch (warning.problem()) {
    case v1::CHECKPOINT_PROBLEM_SAVE_FAILED:
      record.set_failed(record.failed() + 1);
      record.set_failed_in_a_row(record.failed_in_a_row() + 1);
      *record.mutable_last_failure() = warning;
      break;
    case v1::CHECKPOINT_PROBLEM_PASSED_OVER:
    case v1::CHECKPOINT_PROBLEM_OTHER_SEED:
    case v1::CHECKPOINT_PROBLEM_OTHER_DATA:
    case v1::CHECKPOINT_PROBLEM_OTHER_TRAINING:
      if (record.resume_size() < kMostOfResume) {
        *record.add_resume() = warning;
      }
      break;
    default:
      break;
  }
}

void ApplyToJob(const v1::Event& event, JobEntry& entry) {
  if (event.has_checkpoint_warning() || event.has_training_warning()) {
    ApplyWarning(event, entry);
  } else if (event.has_checkpoint_requested()) {
    CheckpointWanted& wanted = *entry.runtime.mutable_checkpoint_wanted();
    wanted.set_request(event.seq());
    wanted.set_attempt(event.attempt());
    wanted.set_stop(event.checkpoint_requested().stop());
    wanted.set_reason(event.checkpoint_requested().reason());
    entry.job.mutable_checkpoints()->set_requested(event.seq());
  } else if (event.has_checkpoint_answered()) {
    entry.runtime.clear_checkpoint_wanted();
    entry.job.mutable_checkpoints()->set_answered(event.checkpoint_answered().request());
    entry.job.mutable_checkpoints()->set_answer_error(event.checkpoint_answered().error());
  } else if (event.has_checkpoint()) {
    entry.runtime.set_checkpoint_step(event.checkpoint().step());
    entry.runtime.set_checkpoint_attempt(event.attempt());
    v1::CheckpointRecord& record = *entry.job.mutable_checkpoints();
    record.set_saved(record.saved() + 1);
    record.set_failed_in_a_row(0);
    record.set_last_step(event.checkpoint().step());
    *record.mutable_last_saved() = event.time();
    record.set_bytes(record.bytes() + event.checkpoint().bytes());
    const v1::CheckpointCommitted& saved = event.checkpoint();
    const double stalled = record.has_stall_seconds() ? record.stall_seconds() : record.seconds();
    record.set_stall_seconds(stalled + (saved.has_stall_seconds() ? saved.stall_seconds() : saved.seconds()));
    record.set_seconds(record.seconds() + saved.seconds());
    if (event.checkpoint().step() > entry.job.last_step()) {
      entry.job.set_last_step(event.checkpoint().step());
    }
  } else {
    ApplyTransition(event, entry);
  }
  entry.job.set_revision(event.seq());
}

}  // namespace

void Apply(const v1::Event& event, State& state) {
  TANDEM_CHECK(event.seq() == state.last_seq + 1, "events are applied in order, without gaps");
  state.last_seq = event.seq();
  if (event.job_id().empty()) {
    return;
  }
  if (event.has_submitted()) {
    JobEntry entry;
    entry.job = event.submitted();
    entry.job.set_state(event.to());
    entry.job.set_revision(event.seq());
    entry.runtime.set_submitted_seq(event.seq());
    state.jobs.Add(std::move(entry));
    return;
  }
  TANDEM_CHECK(state.jobs.contains(event.job_id()), "an event is about a live job");
  state.jobs.Change(event.job_id(), [&](JobEntry& entry) { ApplyToJob(event, entry); });
}

std::string KindOf(const v1::Event& event) {
  for (const auto& [fact, kind] : kFactKinds) {
    if (event.fact_case() == fact) {
      return kind;
    }
  }
  for (const auto& [state, kind] : kStateKinds) {
    if (event.to() == state) {
      return kind;
    }
  }
  return "";
}

bool IsKnownKind(const std::string& kind) {
  const auto is_it = [&](const auto& known) { return kind == known.second; };
  return std::any_of(std::begin(kFactKinds), std::end(kFactKinds), is_it) ||
         std::any_of(std::begin(kStateKinds), std::end(kStateKinds), is_it);
}

}  // namespace tandem::controller
