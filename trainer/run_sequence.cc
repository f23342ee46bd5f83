// SPDX-License-Identifier: Apache-2.0
#include "trainer/run_sequence.h"

namespace tandem::trainer {

int64_t StepOf(const Run& run, int64_t validated) {
  return run.computed > 0 ? run.computed : (run.applied > 0 ? run.applied : validated);
}

int64_t StepOf(const Run& run, schedules::Opcode opcode, int64_t validated) {
  const bool applies = opcode == schedules::Opcode::kOptimizerStep || opcode == schedules::Opcode::kSnapshot;
  return applies && run.kind != RunKind::kValidate ? run.applied : StepOf(run, validated);
}

RunSequence::RunSequence(const SequenceOptions& options)
    : options_(options),
      applied_(options.first_step),
      computed_(options.first_step),
      saved_step_(options.first_step) {}

// Of step 0 it shows where the curve starts.
bool RunSequence::ValidationDue(int64_t step) const {
  if (options_.validate_every == 0 || validated_step_ == step) {
    return false;
  }
  if (step == options_.first_step) {
    return step == 0 || options_.validates_first;
  }
  return step >= options_.last_step || step % options_.validate_every == 0;
}

bool RunSequence::SaveDue(int64_t step) const {
  if (!options_.has_directory || saved_step_ == step) {
    return false;
  }
  return checkpoint_wanted_ || stop_wanted_ || step >= options_.last_step ||
         (options_.checkpoint_every > 0 && step % options_.checkpoint_every == 0);
}

bool RunSequence::SavesBeside(int64_t step) const {
  return options_.saves_beside && SaveDue(step) && !stop_wanted_ && step < options_.last_step &&
         !ValidationDue(step) && profiles_.next() == Recording::kNone;
}

RunSequence::Next RunSequence::Decide(int in_flight) const {
  if (computed_ == applied_) {
    return DecideAtBoundary(in_flight);
  }
  // What is recorded shares the device with no other run.
  const Recording recording = profiles_.next();
  if (in_flight > 0 && recording_) {
    return {Action::kDrain, {}};
  }
  if (SavesBeside(computed_)) {
    // What any of the runs in flight agrees on is answered by this save. A save that is still to be written
    // reads what this one overwrites.
    if (in_flight > 0 && (checkpoint_wanted_ || saves_)) {
      return {Action::kDrain, {}};
    }
    return {Action::kIssue, {.kind = RunKind::kTrainSave, .applied = computed_, .computed = computed_ + 1}};
  }
  if (computed_ >= options_.last_step || checkpoint_wanted_ || stop_wanted_ || ValidationDue(computed_) ||
      SaveDue(computed_)) {
    return {Action::kIssue, {.kind = RunKind::kUpdate, .applied = computed_}};
  }
  if (in_flight > 0 && recording != Recording::kNone) {
    return {Action::kDrain, {}};
  }
  return {Action::kIssue,
          {.kind = RunKind::kTrain, .applied = computed_, .computed = computed_ + 1, .recording = recording}};
}

// Every step that was computed is applied.
RunSequence::Next RunSequence::DecideAtBoundary(int in_flight) const {
  // What any of these runs has agreed on is acted on here.
  if (in_flight > 0) {
    return {Action::kDrain, {}};
  }
  if (ValidationDue(applied_) && !validation_makes_way()) {
    return {Action::kValidate, {}};
  }
  if (SaveDue(applied_)) {
    return {Action::kSave, {}};
  }
  if (checkpoint_wanted_ && !stop_wanted_ && applied_ > 0) {
    return {Action::kAnswer, {}};
  }
  // A job is not done without the number that the validation of its last step is for.
  if (applied_ >= options_.last_step && !validation_pending()) {
    return {Action::kFinish, {}};
  }
  if (stop_wanted_) {
    return {Action::kStop, {}};
  }
  return {Action::kIssue,
          {.kind = RunKind::kBegin, .computed = computed_ + 1, .recording = profiles_.next()}};
}

void RunSequence::Issued(const Run& run) {
  if (run.kind == RunKind::kValidate) {
    return;
  }
  applied_ = run.applied > 0 ? run.applied : applied_;
  computed_ = run.computed > 0 ? run.computed : computed_;
  recording_ = run.recording != Recording::kNone;
  saves_ = run.kind == RunKind::kTrainSave;
  if (run.kind == RunKind::kTrainSave) {
    Saved(true);
    checkpoint_wanted_ = false;
  }
}

void RunSequence::Saved(bool succeeded) {
  saved_step_ = applied_;
  save_failed_ = !succeeded;
}

bool RunSequence::SaveFailed(int64_t step) {
  if (saved_step_ != step || step != applied_) {
    return false;
  }
  const bool again = checkpoint_wanted_ || is_final();
  saved_step_ = again ? -1 : step;
  save_failed_ = !again;
  return again;
}

void RunSequence::Ended(const Agreed& agreed) {
  if (save_failed_ && (agreed.checkpoint || agreed.stop)) {
    saved_step_ = -1;
    save_failed_ = false;
  }
  checkpoint_wanted_ |= agreed.checkpoint;
  stop_wanted_ |= agreed.stop;
  // The run behind the one that agreed on it may have agreed on it again.
  if (agreed.profile.id != 0 && agreed_profiles_.insert(agreed.profile.id).second) {
    profiles_.Add(agreed.profile);
  }
}

}  // namespace tandem::trainer
