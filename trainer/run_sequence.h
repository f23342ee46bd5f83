// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <set>

#include "schedules/program/opcode.h"
#include "trainer/profiling.h"

namespace tandem::trainer {

// Which program a rank runs next, and where it has to stop: decided by positions and by what the ranks have
// agreed on, never by what one rank sees alone. Pure: no clock, no device.
//
// Step s is computed by one run (its gradients and their norm) and applied by a later one (its optimizer
// steps): the next step's run, or `update` where something needs the weights of step s in between. A save
// does not where the next step's run can copy what it applies to the host (train_save).

enum class RunKind : uint8_t { kTrain, kBegin, kUpdate, kValidate, kTrainSave };

struct Run {
  RunKind kind = RunKind::kTrain;
  int64_t applied = 0;   // the step that its optimizer steps complete; 0: none
  int64_t computed = 0;  // the step whose gradients it computes; 0: none
  Recording recording = Recording::kNone;
  bool operator==(const Run&) const = default;
};

// The step that a run works for, as a rank's shared page has it: the one that it computes, or else applies.
// validated: of a validation, the step whose weights it uses.
int64_t StepOf(const Run& run, int64_t validated);

// The step that an instruction of the run works for: a run may complete one and compute the next.
int64_t StepOf(const Run& run, schedules::Opcode opcode, int64_t validated);

struct SequenceOptions {
  int64_t first_step = 0;        // done before: 0, or that of the checkpoint
  bool validates_first = false;  // the checkpoint was saved before the validation of first_step had ended
  int64_t last_step = 0;         // of the job; where it was done before, nothing is issued
  int64_t validate_every = 0;    // 0: never
  int64_t checkpoint_every = 0;  // 0: only at the end and on request
  bool has_directory = false;    // without one nothing is saved
  bool saves_beside = false;     // there are runs of train_save
};

// What the ranks have agreed on with one norm.
struct Agreed {
  bool checkpoint = false;
  bool stop = false;
  ProfileSteps profile;  // id 0: none
};

// Not thread-safe.
class RunSequence {
 public:
  enum class Action : uint8_t {
    kIssue,     // run(): it may overlap the end of the run before, unless it is recorded
    kDrain,     // wait for all that was issued, pass that to Ended, and ask again
    kValidate,  // the weights of step(), until that makes way; nothing is in flight; call Validated at its
                // end
    kSave,      // the state of step(); nothing is in flight; call Saved
                // (a run of kind kTrainSave saves what it applies, and answers what was asked for)
    kAnswer,    // what was asked for is done; call Answered
    kStop,      // on request: step() is applied, and saved where there is a directory
    kFinish,    // every step is applied, and the last one validated
  };

  struct Next {
    Action action = Action::kFinish;
    Run run;  // of kIssue
  };

  explicit RunSequence(const SequenceOptions& options);

  // What to do now. in_flight: runs that were issued and have not ended.
  Next Decide(int in_flight) const;

  void Issued(const Run& run);
  // The ranks agreed on this in a run that has ended, or between two pieces of a validation.
  void Ended(const Agreed& agreed);
  void Validated() { validated_step_ = applied_; }
  // A save that has failed is tried again where another request comes for the same step.
  void Saved(bool succeeded);
  // A save of `step` that was written beside what followed, and counted as one that had succeeded, has
  // failed. All ranks call it between the same two decisions. Returns whether that step is to be saved again.
  bool SaveFailed(int64_t step);
  void Answered() { checkpoint_wanted_ = false; }

  // Which request the recorded run belongs to; it has ended.
  ProfileQueue::Recorded Recorded() { return profiles_.Advance(); }

  // A validation of step() is still to come, or to go on: here, or in the job that resumes from it.
  bool validation_pending() const { return ValidationDue(applied_); }
  // It does not begin, or go on, before something else is done. A stop may have little time left, so it
  // leaves the rest of the validation to the job that resumes. A checkpoint is saved in the middle; of step 0
  // there is none, so that one waits.
  bool validation_makes_way() const { return stop_wanted_ || (checkpoint_wanted_ && applied_ > 0); }

  // A checkpoint was asked for that no save and no answer has followed.
  bool checkpoint_wanted() const { return checkpoint_wanted_; }

  int64_t step() const { return applied_; }  // applied, as issued
  // Nothing follows a save at step(), so it must succeed.
  bool is_final() const { return stop_wanted_ || applied_ >= options_.last_step; }

 private:
  bool ValidationDue(int64_t step) const;
  bool SaveDue(int64_t step) const;
  // Whether that is a run's that computes the step behind it, so that no run of its own need apply it.
  bool SavesBeside(int64_t step) const;
  Next DecideAtBoundary(int in_flight) const;

  const SequenceOptions options_;
  int64_t applied_;
  int64_t computed_;
  int64_t validated_step_ = -1;
  int64_t saved_step_;        // or where a save has failed
  bool save_failed_ = false;  // that one
  bool checkpoint_wanted_ = false;
  bool stop_wanted_ = false;
  bool recording_ = false;  // the run issued last
  bool saves_ = false;      // likewise
  ProfileQueue profiles_;
  std::set<uint64_t> agreed_profiles_;
};

}  // namespace tandem::trainer
