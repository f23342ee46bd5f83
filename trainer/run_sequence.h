// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <set>

#include "schedules/program/opcode.h"
#include "trainer/profiling.h"

namespace tandem::trainer {

// Decides which program a rank runs next, and when it stops. The decision depends only on the steps done and
// on what the ranks have agreed on, so all ranks decide alike. Pure: no clock, no device.
//
// Step s is computed by one run (its gradients and their norm) and applied by a later one (its optimizer
// steps): by the next step's run, or by `update` if something needs the weights of step s in between. A save
// does not need `update` if the next step's run can copy the weights that it applies to the host
// (train_save).

enum class RunKind : uint8_t { kTrain, kBegin, kUpdate, kValidate, kTrainSave };

struct Run {
  RunKind kind = RunKind::kTrain;
  int64_t applied = 0;   // the step that its optimizer steps complete; 0: none
  int64_t computed = 0;  // the step whose gradients it computes; 0: none
  Recording recording = Recording::kNone;
  bool operator==(const Run&) const = default;
};

// Returns the step that a rank's shared page shows for a run: the step that it computes, or else the step
// that it applies. For a validation that is `validated`, the step whose weights it uses.
int64_t StepOf(const Run& run, int64_t validated);

// The step that an instruction of the run works for. A run may complete one step and compute the next.
int64_t StepOf(const Run& run, schedules::Opcode opcode, int64_t validated);

struct SequenceOptions {
  int64_t first_step = 0;        // the last step done before: 0, or the checkpoint's
  bool validates_first = false;  // the checkpoint was saved before the validation of first_step had ended
  int64_t last_step = 0;         // last step of the job; if it was done before, no run is issued
  int64_t validate_every = 0;    // 0: never
  int64_t checkpoint_every = 0;  // 0: only at the end and on request
  bool has_directory = false;    // if false, nothing is saved
  bool saves_beside = false;     // train_save runs are possible
};

// The requests that the ranks have agreed on with one norm.
struct Agreed {
  bool checkpoint = false;
  bool stop = false;
  ProfileSteps profile;  // id 0: none
};

// Not thread-safe.
class RunSequence {
 public:
  enum class Action : uint8_t {
    kIssue,  // issue run(); it may overlap the end of the previous run, unless it is recorded
    kDrain,  // wait for all runs in flight, pass their requests to Ended, and ask again
    // Validate the weights of step() while nothing is in flight, until validation_makes_way(); call Validated
    // when it is complete.
    kValidate,
    kSave,    // save the state of step() while nothing is in flight; call Saved
              // (not used if a run of kind kTrainSave saves)
    kAnswer,  // answer the requests for a checkpoint; call Answered
    kStop,    // stop as requested: step() is applied, and saved if there is a directory
    kFinish,  // every step is applied, and the last one validated
  };

  struct Next {
    Action action = Action::kFinish;
    Run run;  // for kIssue
  };

  explicit RunSequence(const SequenceOptions& options);

  // The next action. `in_flight` is the number of runs that were issued and have not ended.
  Next Decide(int in_flight) const;

  void Issued(const Run& run);
  // Must be called with what the ranks agreed on, when a run has ended or between two pieces of a validation.
  void Ended(const Agreed& agreed);
  void Validated() { validated_step_ = applied_; }
  // Must be called when a save of step() has ended. If it failed, it is tried again only if another request
  // comes at the same step.
  void Saved(bool succeeded);
  // Must be called if a save of `step` beside training has failed, which counted as successful when it began.
  // All ranks must call it between the same two decisions. Returns whether that step must be saved again.
  bool SaveFailed(int64_t step);
  void Answered() { checkpoint_wanted_ = false; }

  // Must be called when a recorded run has ended. Returns the request that it belongs to.
  ProfileQueue::Recorded Recorded() { return profiles_.Advance(); }

  // Whether a validation of step() must still begin or continue, in this job or in one that resumes from it.
  bool validation_pending() const { return ValidationDue(applied_); }
  // Whether a request must be served before the validation begins or continues. A stop may have little time
  // left, so the job that resumes does the rest of the validation. A checkpoint is saved in the middle of the
  // validation, except at step 0, which has no checkpoint: there the request waits.
  bool validation_makes_way() const { return stop_wanted_ || (checkpoint_wanted_ && applied_ > 0); }

  // Whether a checkpoint was requested and neither saved nor answered since.
  bool checkpoint_wanted() const { return checkpoint_wanted_; }

  int64_t step() const { return applied_; }  // the last step whose update was issued
  // Whether nothing follows a save at step(), so that it must succeed.
  bool is_final() const { return stop_wanted_ || applied_ >= options_.last_step; }

 private:
  bool ValidationDue(int64_t step) const;
  bool SaveDue(int64_t step) const;
  // Whether the run that computes the next step also saves `step`, so that no run of its own is needed to
  // apply it.
  bool SavesBeside(int64_t step) const;
  Next DecideAtBoundary(int in_flight) const;

  const SequenceOptions options_;
  int64_t applied_;
  int64_t computed_;
  int64_t validated_step_ = -1;
  int64_t saved_step_;        // also set if a save has failed
  bool save_failed_ = false;  // whether the save of saved_step_ has failed
  bool checkpoint_wanted_ = false;
  bool stop_wanted_ = false;
  bool recording_ = false;  // whether the run issued last is recorded
  bool saves_ = false;      // whether the run issued last saves
  ProfileQueue profiles_;
  std::set<uint64_t> agreed_profiles_;
};

// Counts the steps of a job that changed its weights. All ranks have the same count. When the update of a
// step is issued, the run that computed the step may still be in flight, but all earlier runs have ended; so
// it is known which earlier steps were applied. If the step itself is skipped later, its number is not used.
// Pure.
class AppliedUpdates {
 public:
  // `steps` is the number of steps done before, `skipped` the number of those that changed no weight.
  AppliedUpdates(int64_t steps, int64_t skipped) : step_(steps), before_(steps - skipped), all_(before_) {}

  // Must be called when a run that computed `step` has ended, in the order of steps.
  void Computed(int64_t step, bool applied) {
    before_ = all_;
    all_ += applied ? 1 : 0;
    step_ = step;
  }

  // Adam's t of a step, from 1. `step` is the last step that has ended, or the one after it.
  int64_t UpdateOf(int64_t step) const { return (step == step_ ? before_ : all_) + 1; }

  int64_t updates() const { return all_; }
  int64_t skipped() const { return step_ - all_; }

 private:
  int64_t step_;
  int64_t before_;  // number of updates before step_
  int64_t all_;     // number of updates up to and including step_
};

}  // namespace tandem::trainer
