// SPDX-License-Identifier: Apache-2.0
#include "trainer/step_reports.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "plan/job_plan.h"
#include "platform/clock.h"
#include "platform/log.h"
#include "trainer/rank.h"

namespace tandem::trainer {
namespace {

constexpr size_t kMostNonfinite = 5;  // places that are named

// "model.norm.weight (held by rank 1), ..."
std::string NonfinitePlaces(const StepSummary& summary,
                            const std::vector<plan::TrainedParameter>& parameters) {
  if (summary.nonfinite_at.empty()) {
    return "report: {parameter_norms: true} would say where";
  }
  std::vector<std::string> places;
  for (const NonfiniteGradient& at : summary.nonfinite_at) {
    if (places.size() == kMostNonfinite) {
      places.push_back(absl::StrCat(summary.nonfinite_at.size() - kMostNonfinite, " more"));
      break;
    }
    places.push_back(absl::StrCat(parameters[at.parameter].name, " (held by rank ", at.rank, ")"));
  }
  return absl::StrJoin(places, ", ");
}

}  // namespace

StepReports::StepReports(platform::Files& files, const std::string& directory, int64_t resumed_step,
                         const std::vector<plan::TrainedParameter>& parameters, RankObserver& observer)
    : parameters_(parameters), observer_(observer) {
  if (!directory.empty()) {
    metrics_.emplace(files, directory, resumed_step);
    tensorboard_.emplace(files, platform::SteadyClock(), directory, resumed_step);
  }
}

void StepReports::Append(const StepSummary& summary) {
  if (summary.nonfinite > 0) {  // otherwise finite squares whose sum is not
    AppendNonfinite(summary);
  }
  if (metrics_.has_value()) {
    metrics_->Append(summary);
    tensorboard_->Append(summary);
  }
  observer_.OnReport(summary);
}

void StepReports::AppendNonfinite(const StepSummary& summary) {
  nonfinite_places_ = NonfinitePlaces(summary, parameters_);
  platform::Log(platform::LogLevel::kWarning, "gradients are not finite",
                {{"step", absl::StrCat(summary.step)},
                 {"elements", absl::StrCat(summary.nonfinite)},
                 {"where", nonfinite_places_}});
  if (!std::exchange(has_warned_, true)) {
    const bool one = summary.nonfinite == 1;
    observer_.OnNonfinite(summary.step,
                          absl::StrCat(summary.nonfinite, one ? " element" : " elements",
                                       " of the gradients of step ", summary.step, one ? " is" : " are",
                                       " not finite: ", nonfinite_places_, "; the step was not applied"));
  }
}

}  // namespace tandem::trainer
