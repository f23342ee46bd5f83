// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/owner.h"
#include "comm/communicator.h"
#include "plan/job_plan.h"
#include "platform/files.h"
#include "trainer/failure.h"
#include "trainer/loss_window.h"
#include "trainer/metrics_file.h"
#include "trainer/own_norms.h"
#include "trainer/rank.h"
#include "trainer/reporter.h"
#include "trainer/run_memory.h"
#include "trainer/tensorboard_file.h"

namespace tandem::trainer {

// What norms in reports are of, in their order. Its digest is of the names and shapes, so that jobs whose
// layouts are the same and that train other parts of them have tables of their own.
v1::ParameterTable TableOf(const std::vector<plan::JobParameter>& parameters);

// A step's record on its way: put together on each rank from the runs that computed and applied the step,
// folded by the reporter, and on rank 0 written to metrics.jsonl and TensorBoard's file in the job's
// directory, sent, and logged where gradients are not finite. Used by the rank's thread.
class StepReports {
 public:
  // A scalar of steps whose gradient norm is a spike: the largest norm that would not have been.
  static constexpr char kSpikeLimit[] = "spike_limit";
  // Likewise of the loss (loss_window.h).
  static constexpr char kLossSpikeLimit[] = "loss_spike_limit";

  // comm, seconds_at_peak: as for the reporter. resumed_step: done before. pending_report: of it, as Hold
  // returned it; then the step is reported again. self: the job. failed: called
  // once, on the reporter's thread, with the error that Flush throws. All but the functions outlive it. On
  // rank 0 it sends the table of parameters first, where norms are wanted. Throws as ThrowIfUnwritable
  // (directory_error.h) where a file cannot be written.
  StepReports(platform::Files& files, comm::Communicator& comm, const plan::JobPlan& plan,
              double seconds_at_peak, int64_t resumed_step, const std::string& pending_report,
              const checkpoint::Owner& self, SendToWorker send,
              std::function<void(std::exception_ptr)> failed);

  // What a run that has ended says of the step that it computed, which takes so long, and of the one that it
  // applied, which is the one that was computed last: in this order a run's Applied comes first.
  void Applied(const RunRecord& run);
  void Computed(RunRecord run, double seconds);
  void AddSeconds(double seconds) { record_->report.set_seconds(record_->report.seconds() + seconds); }
  // The weights of `step`, the one that was applied last. Step 0 has a report of nothing else.
  void Validated(int64_t step, std::vector<TextLosses> validation);

  // How often a named training text has been read by the end of the step that was computed last.
  void Epochs(const std::string& name, double epochs) {
    (*record_->report.mutable_scalars())["epoch/" + name] = epochs;
  }

  // The norm of the gradients of the step that was computed last is above that limit.
  void Spike(double limit) { (*record_->report.mutable_scalars())[kSpikeLimit] = limit; }

  // How many steps of the job have been skipped, with the one that was computed last.
  void Skipped(int64_t steps) {
    (*record_->report.mutable_scalars())["skipped_steps"] = static_cast<double>(steps);
  }

  // Reports the step that was computed last; without one: nothing.
  void Submit();
  // Collective: folds what there is of the step that was computed last, and keeps it until its validation is
  // submitted, or until Submit without one. Returns it on rank 0, as a JSON object without details, and "{}"
  // on the others.
  std::string Hold();
  // Waits until everything submitted has been reported. Warns the user of steps that metrics.jsonl lacks
  // then, once for each time that its disk is full. Throws InstructionError.
  void Flush();

  // The step that was computed last and is not submitted; 0: none.
  int64_t step() const { return record_.has_value() ? record_->report.step() : 0; }

  // On rank 0, flushed: which gradients of the newest step that had such were not finite.
  const std::string& nonfinite_places() const { return nonfinite_places_; }
  // Likewise of the first step that was skipped.
  const std::string& first_places() const { return first_places_; }

 private:
  void WarnOfMissingMetrics();
  void WarnOfNoTargets(int64_t step);
  void ReportSpike(const v1::StepReport& report);
  // A loss that is a spike is a warning and nothing else: the update may have been issued when it is known.
  void JudgeLoss(v1::StepReport& report);
  // Logs `text`, and sends it unless many such warnings were sent. scalar: which later ones are seen by.
  void WarnOfSpike(std::string text, const char* scalar, v1::TrainingWarning warning, int& warned) const;
  void Report(v1::StepReport report, const std::vector<NonfiniteGradient>& nonfinite);
  void Emit(const v1::StepReport& report);
  void ReportNonfinite(const v1::StepReport& report, const std::vector<NonfiniteGradient>& nonfinite);
  InstructionError ErrorOf(std::exception_ptr error, int64_t step) const;

  comm::Communicator& comm_;
  const plan::JobPlan& plan_;
  const int attempt_;
  const SendToWorker send_;
  const std::vector<plan::JobParameter> parameters_;  // of the whole job
  const std::vector<OwnNorm> own_;                    // of this rank
  std::optional<MetricsFile> metrics_;
  std::optional<TensorBoardFile> tensorboard_;
  std::string table_digest_;
  std::string nonfinite_places_ = "the sum of their squares";  // may overflow where all elements are finite
  std::string first_places_ = nonfinite_places_;
  bool has_warned_ = false;
  bool has_warned_of_metrics_ = false;
  int warned_of_spikes_ = 0;
  int warned_of_losses_ = 0;
  LossWindow
      losses_;  // rank 0: of what metrics.jsonl had, and of this attempt; used by the reporter's thread
  // Complete once the run that applies the step has ended, and what follows that.
  std::optional<StepRecord> record_;
  int64_t submitted_step_ = 0;
  // Of rank 0, of a step whose validation is still to come. Used by the reporter's thread while a record is
  // in progress, and else by the rank's.
  std::optional<v1::StepReport> held_;
  bool holds_ = false;  // what is in progress becomes held_
  Reporter reporter_;
};

}  // namespace tandem::trainer
