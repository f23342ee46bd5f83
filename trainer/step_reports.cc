// SPDX-License-Identifier: Apache-2.0
#include "trainer/step_reports.h"

#include <algorithm>
#include <cmath>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "fsdp/layout.h"
#include "fsdp/unit_mesh.h"
#include "google/protobuf/util/json_util.h"
#include "platform/check.h"
#include "platform/clock.h"
#include "platform/log.h"
#include "proto/table_digest.h"
#include "trainer/spikes.h"

namespace tandem::trainer {

std::vector<OwnNorm> OwnNormsOf(const plan::JobPlan& plan, int rank) {
  const std::vector<size_t> in_table = plan::TrainedParametersOf(plan, rank);
  const std::vector<fsdp::ClassLayouts> layouts = plan::LayoutsOf(plan, rank);
  std::vector<OwnNorm> own;
  size_t in_run = 0;
  for (size_t unit = 0; unit < layouts.size(); ++unit) {
    if (plan.outline.units[unit].frozen) {
      continue;
    }
    const fsdp::UnitMesh mesh = plan::MeshOf(plan, unit, rank);
    for (const fsdp::Layout& layout : layouts[unit]) {
      std::vector<bool> counts(layout.parameters.size(), false);
      if (CountsHeld(mesh)) {
        for (const fsdp::Piece& piece : PiecesOf(layout, HeldRange(layout, mesh))) {
          counts[piece.parameter] = true;
        }
      }
      for (const bool counted : counts) {
        if (counted) {
          own.push_back({.in_run = in_run, .in_table = static_cast<int64_t>(in_table.at(in_run))});
        }
        ++in_run;
      }
    }
  }
  return own;
}

namespace {

constexpr size_t kMostNonfinite = 5;  // parameters in the text
constexpr int kMostSpikes = 20;       // warnings of an attempt, for norms and for losses

// "model.norm.weight (held by rank 1), ..."
std::string NonfinitePlaces(const std::vector<NonfiniteGradient>& nonfinite,
                            const std::vector<plan::JobParameter>& parameters) {
  if (nonfinite.empty()) {
    return "report: {parameter_norms: true} would say where";
  }
  std::vector<std::string> places;
  for (const NonfiniteGradient& at : nonfinite) {
    if (places.size() == kMostNonfinite) {
      places.push_back(absl::StrCat(nonfinite.size() - kMostNonfinite, " more"));
      break;
    }
    places.push_back(absl::StrCat(parameters[at.parameter].name, " (held by rank ", at.rank, ")"));
  }
  return absl::StrJoin(places, ", ");
}

std::vector<int64_t> ElementsOf(const std::vector<plan::JobParameter>& parameters) {
  std::vector<int64_t> elements;
  for (const plan::JobParameter& parameter : parameters) {
    elements.push_back(fsdp::NumElements(parameter.shape, {}));
  }
  return elements;
}

std::vector<int64_t> PlacesOf(const std::vector<OwnNorm>& norms) {
  std::vector<int64_t> places;
  for (const OwnNorm& norm : norms) {
    places.push_back(norm.in_table);
  }
  return places;
}

// The first step that is reported. In a new job that is step 0, the validation before step 1.
int64_t FirstStep(int64_t resumed_step, bool is_pending) {
  return resumed_step == 0 || is_pending ? resumed_step : resumed_step + 1;
}

std::string TextOf(v1::StepReport report) {
  report.clear_norms();
  std::string text;
  google::protobuf::util::JsonPrintOptions options;
  options.preserve_proto_field_names = true;
  const auto printed = google::protobuf::util::MessageToJsonString(report, &text, options);
  TANDEM_CHECK(printed.ok(), "a report has a JSON form");
  return text;
}

// Reads what TextOf wrote, perhaps in another build. If `text` is not a report, only the step is set.
v1::StepReport ReportFrom(const std::string& text, int64_t step) {
  v1::StepReport report;
  google::protobuf::util::JsonParseOptions options;
  options.ignore_unknown_fields = true;
  if (const auto parsed = google::protobuf::util::JsonStringToMessage(text, &report, options); !parsed.ok()) {
    platform::Log(platform::LogLevel::kWarning, "the checkpoint's report of its step cannot be read",
                  {{"step", absl::StrCat(step)}, {"error", parsed.ToString()}});
    report.Clear();
  }
  report.set_step(step);
  return report;
}

// Whether its loss counts for the spikes of later losses: the report is of a training step whose gradients
// are finite. (Gradients that are not finite have a warning of their own.)
bool HasLoss(const v1::StepReport& report) {
  return report.tokens() > 0 && std::isfinite(report.grad_norm());
}

}  // namespace

v1::FromTrainer TrainingWarningOf(int64_t step, const std::string& text) {
  v1::FromTrainer message;
  message.mutable_training_warning()->set_step(step);
  message.mutable_training_warning()->set_message(text);
  return message;
}

void AddSpeed(double seconds_at_peak, v1::StepReport& report) {
  if (report.seconds() <= 0) {
    return;
  }
  auto& scalars = *report.mutable_scalars();
  scalars["tokens_per_second"] = static_cast<double>(report.tokens()) / report.seconds();
  if (seconds_at_peak > 0 && seconds_at_peak <= report.seconds()) {  // more than the peak is no measurement
    scalars["model_flops_utilization"] = seconds_at_peak / report.seconds();
  }
}

v1::ParameterTable TableOf(const std::vector<plan::JobParameter>& parameters) {
  v1::ParameterTable table;
  for (const plan::JobParameter& parameter : parameters) {
    v1::Parameter& row = *table.add_parameters();
    row.set_name(parameter.name);
    row.mutable_shape()->Add(parameter.shape.begin(), parameter.shape.end());
  }
  table.set_digest(proto::DigestOf(table));
  return table;
}

StepReports::StepReports(platform::Files& files, comm::Communicator& comm, const plan::JobPlan& plan,
                         double seconds_at_peak, int64_t resumed_step, const std::string& pending_report,
                         const checkpoint::Owner& self, SendToWorker send,
                         std::function<void(std::exception_ptr)> failed)
    : comm_(comm),
      plan_(plan),
      attempt_(self.attempt),
      send_(std::move(send)),
      parameters_(plan::TrainedParameters(plan)),
      own_(OwnNormsOf(plan, comm.rank())),
      seconds_at_peak_(seconds_at_peak),
      reporter_(
          comm, ElementsOf(parameters_), PlacesOf(own_), SharingOf(plan),
          [this](const v1::StepReport& report, const std::vector<NonfiniteGradient>& nonfinite) {
            Report(report, nonfinite);
          },
          [this, failed = std::move(failed)](int64_t step, std::exception_ptr error) {
            failed(std::make_exception_ptr(ErrorOf(std::move(error), step)));
          }) {
  const std::string& directory = plan.train.checkpoint.directory;
  if (comm.rank() == 0 && !directory.empty()) {
    const int64_t first_step = FirstStep(resumed_step, !pending_report.empty());
    metrics_.emplace(files, directory, self, first_step);
    tensorboard_.emplace(files, platform::SteadyClock(), directory, self, first_step);
  }
  if (comm.rank() == 0 && !pending_report.empty()) {
    held_ = ReportFrom(pending_report, resumed_step);
  }
  if (metrics_.has_value()) {
    for (const double loss : metrics_->losses_before()) {
      losses_.Add(loss);
    }
  }
  if (held_.has_value() && HasLoss(*held_)) {
    losses_.Add(held_->loss());
  }
  if (comm.rank() == 0 && plan.train.parameter_norms) {
    v1::FromTrainer message;
    *message.mutable_table() = TableOf(parameters_);
    table_digest_ = message.table().digest();
    send_(std::move(message));
  }
}

void StepReports::Applied(const RunRecord& run) {
  record_->report.set_learning_rate(run.learning_rate);
  if (run.norms.empty()) {
    return;
  }
  std::vector<fsdp::ParameterNorms>& norms = record_->norms.emplace();
  for (const OwnNorm& own : own_) {
    norms.push_back(run.norms.at(own.in_run));
  }
}

void StepReports::Computed(RunRecord run, double seconds) {
  StepRecord& record = record_.emplace();
  record.report.set_step(run.run.computed);
  record.report.set_grad_norm(run.outcome.norm);
  record.report.set_nonfinite(run.outcome.nonfinite);
  record.report.set_tokens(plan::TokensPerStep(plan_));
  record.report.set_seconds(seconds);
  const double tokens = static_cast<double>(plan_.batch.tokens());
  const bool counts_all = run.outcome.divisor * tokens == static_cast<double>(plan::TokensPerStep(plan_));
  if (!plan_.train.data.counts_first_tokens || !counts_all) {
    (*record.report.mutable_scalars())["counted_tokens"] = std::round(run.outcome.divisor * tokens);
  }
  if (run.outcome.divisor == 0) {
    WarnOfNoTargets(run.run.computed);
  }
  record.losses = std::move(run.losses);
  record.depth_losses = std::move(run.depth_losses);
  record.divisor = run.outcome.divisor;
  record.routers = std::move(run.routers);
}

void StepReports::Validated(int64_t step, std::vector<TextLosses> validation) {
  if (!record_.has_value()) {
    record_.emplace().report.set_step(step);
  }
  record_->validation = std::move(validation);
}

void StepReports::WarnOfNoTargets(int64_t step) {
  if (comm_.rank() != 0) {
    return;
  }
  send_(
      TrainingWarningOf(step, absl::StrCat("no target of step ", step, " counts; the step was not applied")));
}

void StepReports::Submit() {
  if (record_.has_value()) {
    const int64_t step = record_->report.step();
    WithStep([this] { reporter_.Submit(*std::exchange(record_, std::nullopt)); });
    submitted_step_ = step;
  } else if (held_.has_value()) {
    Emit(*std::exchange(held_, std::nullopt));
  }
}

std::string StepReports::Hold() {
  if (record_.has_value()) {
    Flush();
    holds_ = true;
    Submit();
    Flush();
    holds_ = false;
  }
  return held_.has_value() ? TextOf(*held_) : "{}";
}

void StepReports::Flush() {
  WithStep([this] { reporter_.Flush(); });
  if (metrics_.has_value()) {
    WarnOfMissingMetrics();
  }
}

void StepReports::WarnOfMissingMetrics() {
  const int64_t missing = metrics_->Flush();
  if (missing == 0) {
    has_warned_of_metrics_ = false;
    return;
  }
  if (std::exchange(has_warned_of_metrics_, true)) {
    return;
  }
  v1::FromTrainer message;
  v1::CheckpointWarning& warning = *message.mutable_checkpoint_warning();
  warning.set_step(submitted_step_);
  warning.set_message(absl::StrCat("metrics.jsonl lacks ", missing, missing == 1 ? " step" : " steps",
                                   ", for which its disk had no room; they are written if the job finds "
                                   "room, and `tandem metrics` has them"));
  send_(std::move(message));
}

void StepReports::Report(v1::StepReport report, const std::vector<NonfiniteGradient>& nonfinite) {
  AddSpeed(seconds_at_peak_, report);
  if (report.nonfinite() > 0) {  // otherwise finite squares whose sum is not
    ReportNonfinite(report, nonfinite);
  }
  if (report.scalars().contains(kSpikeLimit)) {
    ReportSpike(report);
  }
  if (HasLoss(report)) {
    JudgeLoss(report);
  }
  if (holds_) {
    held_ = std::move(report);
    return;
  }
  if (held_.has_value()) {  // this is the validation of that step
    held_->mutable_scalars()->insert(report.scalars().begin(), report.scalars().end());
    report = *std::exchange(held_, std::nullopt);
  }
  Emit(report);
}

void StepReports::Emit(const v1::StepReport& report) {
  if (metrics_.has_value()) {
    metrics_->Append(report);
    tensorboard_->Append(report);
  }
  v1::FromTrainer message;
  *message.mutable_report() = report;
  message.mutable_report()->set_attempt(attempt_);
  if (report.norms().weight_size() > 0) {
    message.mutable_report()->mutable_norms()->set_table_digest(table_digest_);
  }
  send_(std::move(message));
}

void StepReports::ReportNonfinite(const v1::StepReport& report,
                                  const std::vector<NonfiniteGradient>& nonfinite) {
  nonfinite_places_ = NonfinitePlaces(nonfinite, parameters_);
  platform::Log(platform::LogLevel::kWarning, "gradients are not finite",
                {{"step", absl::StrCat(report.step())},
                 {"elements", absl::StrCat(report.nonfinite())},
                 {"where", nonfinite_places_}});
  if (!std::exchange(has_warned_, true)) {
    first_places_ = nonfinite_places_;
    const bool one = report.nonfinite() == 1;
    send_(TrainingWarningOf(report.step(),
                            absl::StrCat(report.nonfinite(), one ? " element" : " elements",
                                         " of the gradients of step ", report.step(), one ? " is" : " are",
                                         " not finite: ", nonfinite_places_, "; the step was not applied")));
  }
}

void StepReports::ReportSpike(const v1::StepReport& report) {
  std::string text = absl::StrFormat(
      "the gradient norm of step %d is %.4g, a spike: the norms of the steps before it set the "
      "limit to %.4g",
      report.step(), report.grad_norm(), report.scalars().at(kSpikeLimit));
  const auto& norms = report.norms().gradient();
  if (const auto largest = std::max_element(norms.begin(), norms.end()); largest != norms.end()) {
    absl::StrAppendFormat(&text, "; that of %s is %.4g", parameters_[largest - norms.begin()].name, *largest);
  }
  if (plan_.train.skips_spikes) {
    const bool skips = NormWindow::MaySkip(report.step(), plan_.train.optimizer.schedule.warmup_steps);
    text += skips ? "; the step was not applied" : "; steps as early as this one are applied all the same";
  }
  WarnOfSpike(TrainingWarningOf(report.step(), text), kSpikeLimit, warned_of_spikes_);
}

void StepReports::JudgeLoss(v1::StepReport& report) {
  const std::optional<Spread> before = losses_.Add(report.loss());
  if (!before.has_value()) {
    return;
  }
  (*report.mutable_scalars())[kLossSpikeLimit] = before->limit();
  WarnOfSpike(
      TrainingWarningOf(report.step(),
                        absl::StrFormat("the loss of step %d is %.4g, a spike: %.1f standard "
                                        "deviations above the mean of the losses before it, %.4g",
                                        report.step(), report.loss(),
                                        (report.loss() - before->mean) / before->deviation, before->mean)),
      kLossSpikeLimit, warned_of_losses_);
}

void StepReports::WarnOfSpike(v1::FromTrainer message, const char* scalar, int& warned) const {
  v1::TrainingWarning& warning = *message.mutable_training_warning();
  platform::Log(platform::LogLevel::kWarning, "a spike", {{"message", warning.message()}});
  if (++warned > kMostSpikes) {
    return;
  }
  if (warned == kMostSpikes) {
    absl::StrAppend(warning.mutable_message(),
                    "; later spikes of this attempt are scalars of their steps alone (", scalar, ")");
  }
  const bool of_loss = std::string_view(scalar) == kLossSpikeLimit;
  warning.set_is_loss_spike(of_loss);
  warning.set_is_spike(!of_loss);
  send_(std::move(message));
}

template <typename F>
void StepReports::WithStep(const F& call) const {
  try {
    call();
  } catch (...) {
    throw ErrorOf(std::current_exception(), submitted_step_);
  }
}

InstructionError StepReports::ErrorOf(std::exception_ptr error, int64_t step) const {
  return InstructionError(std::move(error), step, "report", comm_.name());
}

}  // namespace tandem::trainer
