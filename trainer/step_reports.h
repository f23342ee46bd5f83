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
#include "trainer/metrics_file.h"
#include "trainer/rank.h"
#include "trainer/reporter.h"
#include "trainer/run_memory.h"
#include "trainer/spikes.h"
#include "trainer/tensorboard_file.h"

namespace tandem::trainer {

// A parameter whose norm this rank contributes to. Of the ranks that update an element, only the first
// contributes it.
struct OwnNorm {
  size_t in_run = 0;     // index in RunRecord::norms
  int64_t in_table = 0;  // index among the trained parameters of the job
};

// In the order of RunRecord::norms.
std::vector<OwnNorm> OwnNormsOf(const plan::JobPlan& plan, int rank);

// The table of the parameters whose norms reports have, in their order. Its digest covers names and shapes,
// so jobs with the same layouts that train different parts of them have different tables.
v1::ParameterTable TableOf(const std::vector<plan::JobParameter>& parameters);

// Assembles the record of a step on each rank, from the runs that computed and applied it. The reporter folds
// it. On rank 0 the result is written to metrics.jsonl and TensorBoard's file in the job's directory, sent,
// and logged if gradients are not finite. Used by the rank's thread.
class StepReports {
 public:
  // A scalar of steps whose gradient norm is a spike: the limit that the norm exceeds.
  static constexpr char kSpikeLimit[] = "spike_limit";
  // The same for the loss (LossWindow).
  static constexpr char kLossSpikeLimit[] = "loss_spike_limit";

  // `comm` and `seconds_at_peak` are arguments of the reporter. `resumed_step` is the step done before. If it
  // has a `pending_report`, as Hold returned it, the step is reported again. `self` is the job. `failed` is
  // called once, on the reporter's thread, with the error that Flush throws. All arguments except functions
  // outlive this object. On rank 0 the table of parameters is sent first, if norms are requested. Throws as
  // ThrowIfUnwritable (failure.h) if a file cannot be written.
  StepReports(platform::Files& files, comm::Communicator& comm, const plan::JobPlan& plan,
              double seconds_at_peak, int64_t resumed_step, const std::string& pending_report,
              const checkpoint::Owner& self, SendToWorker send,
              std::function<void(std::exception_ptr)> failed);

  // Take what a run that has ended says of the step that it applied and of the one that it computed.
  // `seconds` is the time of the latter. For each run call Applied first; it concerns the step that was
  // computed last.
  void Applied(const RunRecord& run);
  void Computed(RunRecord run, double seconds);
  void AddSeconds(double seconds) { record_->report.set_seconds(record_->report.seconds() + seconds); }
  // Takes the losses of a validation of the weights of `step`, which was applied last. The report of step 0
  // has nothing else.
  void Validated(int64_t step, std::vector<TextLosses> validation);

  // Takes how often a named training text has been read by the end of the step that was computed last.
  void Epochs(const std::string& name, double epochs) {
    (*record_->report.mutable_scalars())["epoch/" + name] = epochs;
  }

  // Notes that the gradient norm of the step that was computed last is above `limit`.
  void Spike(double limit) { (*record_->report.mutable_scalars())[kSpikeLimit] = limit; }

  // Takes how many steps of the job have been skipped, including the one that was computed last.
  void Skipped(int64_t steps) {
    (*record_->report.mutable_scalars())["skipped_steps"] = static_cast<double>(steps);
  }

  // Reports the step that was computed last, if there is one.
  void Submit();
  // Collective. Folds what is known of the step that was computed last, and keeps it until its validation is
  // submitted, or until Submit without one. Returns it on rank 0 as a JSON object without details, and "{}"
  // on other ranks.
  std::string Hold();
  // Waits until everything submitted has been reported. Warns the user about steps that metrics.jsonl lacks
  // then, once for each time that its disk is full. Throws InstructionError.
  void Flush();

  // The step that was computed last and is not submitted; 0 if there is none.
  int64_t step() const { return record_.has_value() ? record_->report.step() : 0; }

  // On rank 0, after Flush: the places of gradients that were not finite, in the newest step that had any.
  const std::string& nonfinite_places() const { return nonfinite_places_; }
  // The same for the first step that was skipped.
  const std::string& first_places() const { return first_places_; }

 private:
  void WarnOfMissingMetrics();
  void WarnOfNoTargets(int64_t step);
  void ReportSpike(const v1::StepReport& report);
  // Warns if the loss is a spike. Nothing else can be done, because the update may already be issued when the
  // loss is known.
  void JudgeLoss(v1::StepReport& report);
  // Logs `text`, and sends it unless many such warnings were sent already. `scalar` is the scalar in which
  // later spikes can be seen.
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
  // The sum may overflow even if all elements are finite.
  std::string nonfinite_places_ = "the sum of their squares";
  std::string first_places_ = nonfinite_places_;
  bool has_warned_ = false;
  bool has_warned_of_metrics_ = false;
  int warned_of_spikes_ = 0;
  int warned_of_losses_ = 0;
  LossWindow losses_;  // on rank 0: of metrics.jsonl and of this attempt; used by the reporter's thread
  // Complete once the run that applies the step, and a validation after it, have ended.
  std::optional<StepRecord> record_;
  int64_t submitted_step_ = 0;
  // On rank 0, the report of a step whose validation is still to come. Used by the reporter's thread while a
  // record is in progress, and otherwise by the rank's thread.
  std::optional<v1::StepReport> held_;
  bool holds_ = false;  // the record in progress becomes held_
  Reporter reporter_;
};

}  // namespace tandem::trainer
