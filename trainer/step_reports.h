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

// A parameter whose norms this rank contributes to. If several ranks update an element, only the first
// contributes it.
struct OwnNorm {
  size_t in_run = 0;     // index in RunRecord::norms
  int64_t in_table = 0;  // index among the trained parameters of the job
};

// Returns them in the order of RunRecord::norms.
std::vector<OwnNorm> OwnNormsOf(const plan::JobPlan& plan, int rank);

// Makes the table of the parameters whose norms are reported, in the order of the norms. Its digest covers
// names and shapes, so jobs with the same layouts that train different parameters have different tables.
v1::ParameterTable TableOf(const std::vector<plan::JobParameter>& parameters);

// Makes a warning about a step of training.
v1::FromTrainer TrainingWarningOf(int64_t step, const std::string& text);

// Adds to the report of a training step the scalar "tokens_per_second" and, if the time of a step at peak
// speed is known (plan::SecondsAtPeakOf; 0: unknown), the model FLOPs utilization "model_flops_utilization":
// the fraction of the device's peak FLOP/s that the step has reached.
void AddSpeed(double seconds_at_peak, v1::StepReport& report);

// Assembles the record of a step on each rank, from the runs that computed and applied it. The reporter folds
// the records of all ranks into one report. Rank 0 completes the report (AddSpeed, spikes), writes it to
// metrics.jsonl and TensorBoard's file in the job's directory, and sends it. Used by the rank's thread.
class StepReports {
 public:
  // The scalar of a step whose gradient norm is a spike: the limit that the norm exceeds.
  static constexpr char kSpikeLimit[] = "spike_limit";
  // The scalar of a step whose loss is a spike: the limit that the loss exceeds (LossWindow).
  static constexpr char kLossSpikeLimit[] = "loss_spike_limit";

  // `comm` is the reporter's. `resumed_step` is the last step done before; if there is a `pending_report`, as
  // Hold returned it, that step is reported again. `self` is the job. `failed` is called once, on the
  // reporter's thread, with the error that Flush throws. All arguments except functions must outlive this
  // object. If norms are requested, rank 0 sends the table of parameters first. Throws as ThrowIfUnwritable
  // (failure.h) if a file cannot be written.
  StepReports(platform::Files& files, comm::Communicator& comm, const plan::JobPlan& plan,
              double seconds_at_peak, int64_t resumed_step, const std::string& pending_report,
              const checkpoint::Owner& self, SendToWorker send,
              std::function<void(std::exception_ptr)> failed);

  // Must be called when a run has ended: first Applied for the step that it applied, which the previous run
  // computed, then Computed for the step that it computed. `seconds` is the time of the computed step.
  void Applied(const RunRecord& run);
  void Computed(RunRecord run, double seconds);
  void AddSeconds(double seconds) { record_->report.set_seconds(record_->report.seconds() + seconds); }
  // Adds the losses of a validation of the weights of `step`, which was applied last. Step 0 has no other
  // data.
  void Validated(int64_t step, std::vector<TextLosses> validation);

  // Sets a scalar of the step that was computed last.
  void SetScalar(const std::string& name, double value) {
    (*record_->report.mutable_scalars())[name] = value;
  }
  // Reports the step that was computed last, unless that was done. Throws InstructionError if an earlier
  // report failed.
  void Submit();
  // Collective. Folds the report of the step that was computed last, and keeps it for the next Submit, which
  // may add a validation. Returns it on rank 0 as a JSON object without norms, and "{}" on other ranks.
  std::string Hold();
  // Waits until everything submitted has been reported. Sends a warning if metrics.jsonl then lacks steps,
  // once for each time that its disk is full. Throws InstructionError if a report failed.
  void Flush();

  // The step that was computed last, if it is not submitted yet; otherwise 0.
  int64_t step() const { return record_.has_value() ? record_->report.step() : 0; }

  // On rank 0, after Flush: the parameters whose gradients were not finite in the newest such step.
  const std::string& nonfinite_places() const { return nonfinite_places_; }
  // The same for the first step whose gradients were not finite.
  const std::string& first_places() const { return first_places_; }

 private:
  void WarnOfMissingMetrics();
  void WarnOfNoTargets(int64_t step);
  void ReportSpike(const v1::StepReport& report);
  // Warns if the loss is a spike. The step cannot be skipped, because its update may already be issued when
  // the loss is known.
  void JudgeLoss(v1::StepReport& report);
  // Logs the warning, and sends it unless kMostSpikes were sent (`warned`). `scalar` is the scalar of the
  // spike's limit.
  void WarnOfSpike(v1::FromTrainer warning, const char* scalar, int& warned) const;
  void Report(v1::StepReport report, const std::vector<NonfiniteGradient>& nonfinite);
  void Emit(const v1::StepReport& report);
  void ReportNonfinite(const v1::StepReport& report, const std::vector<NonfiniteGradient>& nonfinite);
  // Calls `call`, and throws its exception as an InstructionError of the newest submitted step.
  template <typename F>
  void WithStep(const F& call) const;
  InstructionError ErrorOf(std::exception_ptr error, int64_t step) const;

  comm::Communicator& comm_;
  const plan::JobPlan& plan_;
  const int attempt_;
  const SendToWorker send_;
  const std::vector<plan::JobParameter> parameters_;  // of the whole job
  const std::vector<OwnNorm> own_;                    // of this rank
  const double seconds_at_peak_;
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
  // The record of the step that was computed last. Complete when its update, and a validation after it, have
  // ended.
  std::optional<StepRecord> record_;
  int64_t submitted_step_ = 0;
  // On rank 0, the report of a step whose validation is still to come. Used by the reporter's thread while a
  // record is in progress, and otherwise by the rank's thread.
  std::optional<v1::StepReport> held_;
  bool holds_ = false;  // the record in progress becomes held_
  Reporter reporter_;
};

}  // namespace tandem::trainer
