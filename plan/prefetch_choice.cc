// SPDX-License-Identifier: Apache-2.0
#include "plan/prefetch_choice.h"

#include <algorithm>
#include <exception>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "jobspec/field_rules.h"
#include "plan/prediction.h"
#include "plan/quantity_text.h"
#include "platform/control_groups.h"
#include "platform/for_each_index.h"
#include "platform/status_macros.h"

namespace tandem::plan {
namespace {

constexpr int kDistances = 3;
// Differences of a step's time below this are no difference: the simulation is not that exact.
constexpr double kEqual = 0.001;

absl::StatusOr<PrefetchTrial> TryDistance(v1::JobSpec resolved, int distance,
                                          const schedules::DeviceProfile& profile) {
  resolved.mutable_parallelism()->mutable_fsdp()->set_prefetch(distance);
  TANDEM_ASSIGN_OR_RETURN(const Prediction prediction, Predict(MakeUndigestedPlan(resolved), profile));
  const int64_t bytes = prediction.device_bytes();
  return PrefetchTrial{.distance = distance,
                       .step_ns = prediction.step_ns,
                       .device_bytes = bytes,
                       .fits = profile.memory_bytes == 0 || bytes <= profile.memory_bytes};
}

bool NeedsLess(const PrefetchTrial& a, const PrefetchTrial& b) { return a.device_bytes < b.device_bytes; }

int BestOf(const std::vector<PrefetchTrial>& trials) {
  std::vector<PrefetchTrial> fitting;
  std::copy_if(trials.begin(), trials.end(), std::back_inserter(fitting),
               [](const PrefetchTrial& trial) { return trial.fits; });
  if (fitting.empty()) {
    return std::min_element(trials.begin(), trials.end(), NeedsLess)->distance;
  }
  const auto shortest =
      std::min_element(fitting.begin(), fitting.end(),
                       [](const PrefetchTrial& a, const PrefetchTrial& b) { return a.step_ns < b.step_ns; });
  const double most = static_cast<double>(shortest->step_ns) * (1 + kEqual);
  std::erase_if(fitting,
                [most](const PrefetchTrial& trial) { return static_cast<double>(trial.step_ns) > most; });
  return std::min_element(fitting.begin(), fitting.end(), NeedsLess)->distance;
}

}  // namespace

bool ChoosesPrefetch(const v1::JobSpec& resolved) {
  return resolved.parallelism().fsdp().prefetch() == jobspec::kWord;
}

absl::StatusOr<PrefetchChoice> ChoosePrefetch(const v1::JobSpec& resolved,
                                              const schedules::DeviceProfile& profile) {
  std::vector<absl::StatusOr<PrefetchTrial>> trials(kDistances);
  platform::ForEachIndex(kDistances, platform::NumProcessors(), [&](size_t distance) {
    trials[distance] = TryDistance(resolved, static_cast<int>(distance), profile);
  });
  PrefetchChoice choice;
  for (absl::StatusOr<PrefetchTrial>& trial : trials) {
    TANDEM_RETURN_IF_ERROR(trial.status());
    choice.trials.push_back(*std::move(trial));
  }
  choice.distance = BestOf(choice.trials);
  return choice;
}

const char* PrefetchPreset(const v1::JobSpec& resolved) {
  return resolved.resources().device() == v1::DEVICE_CUDA ? "h100" : "cpu";
}

absl::Status ResolvePrefetch(v1::JobSpec& resolved) {
  if (!ChoosesPrefetch(resolved)) {
    return absl::OkStatus();
  }
  try {
    TANDEM_ASSIGN_OR_RETURN(
        const PrefetchChoice choice,
        ChoosePrefetch(resolved, schedules::PresetProfile(PrefetchPreset(resolved)).value()));
    resolved.mutable_parallelism()->mutable_fsdp()->set_prefetch(choice.distance);
    return absl::OkStatus();
  } catch (const std::exception& e) {
    return absl::InternalError(e.what());
  }
}

std::string PrefetchChoiceToText(const PrefetchChoice& choice) {
  std::string text = absl::StrCat(choice.distance, ", chosen of ");
  for (const PrefetchTrial& trial : choice.trials) {
    absl::StrAppend(&text, trial.distance == 0 ? "" : "; ", trial.distance, ": ", DurationText(trial.step_ns),
                    " a step, ", SizeText(trial.device_bytes), trial.fits ? "" : ", which does not fit");
  }
  return text;
}

nlohmann::json PrefetchChoiceToJson(const PrefetchChoice& choice) {
  nlohmann::json trials = nlohmann::json::array();
  for (const PrefetchTrial& trial : choice.trials) {
    trials.push_back({{"distance", trial.distance},
                      {"step_seconds", static_cast<double>(trial.step_ns) * 1e-9},
                      {"device_bytes", trial.device_bytes},
                      {"fits", trial.fits}});
  }
  return {{"distance", choice.distance}, {"trials", trials}};
}

}  // namespace tandem::plan
