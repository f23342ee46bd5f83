// SPDX-License-Identifier: Apache-2.0
#include "worker/metrics_tail.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_split.h"
#include "checkpoint/owner.h"
#include "nlohmann/json.hpp"

namespace tandem::worker {
namespace {

using Json = nlohmann::json;

// The controller accepts no more scalars, and no longer names.
constexpr int kMostScalarsOfLine = 256;
constexpr size_t kMostNameBytes = 128;

Json Parsed(std::string_view text) {
  return Json::parse(text.begin(), text.end(), nullptr, /*allow_exceptions=*/false);
}

// Numbers that are not finite are null in the file.
std::optional<double> NumberOf(const Json& value) {
  if (value.is_null()) {
    return std::numeric_limits<double>::quiet_NaN();
  }
  return value.is_number() ? std::optional(value.get<double>()) : std::nullopt;
}

// Whether the directory still belongs to the job; another job may have taken it since.
bool IsOf(platform::Files& files, const std::string& directory, const std::string& job) {
  const absl::StatusOr<checkpoint::Owner> owner = checkpoint::ReadOwner(files, directory);
  return owner.ok() && owner->job == job;
}

// Returns the last lines that are complete.
std::string TailOf(platform::Files& files, const std::string& path) {
  const int64_t begin = std::max<int64_t>(0, files.Size(path).value_or(0) - kMostTailBytes);
  std::string text = files.ReadRange(path, begin, kMostTailBytes).value_or("");
  text.resize(text.rfind('\n') == text.npos ? 0 : text.rfind('\n'));  // a crash may have torn the last line
  return begin == 0 ? text : text.substr(std::min(text.size(), text.find('\n')));
}

}  // namespace

std::optional<v1::StepReport> ReportOfLine(std::string_view line) {
  const Json object = Parsed(line);
  if (!object.is_object() || !object.contains("step") || !object["step"].is_number_integer()) {
    return std::nullopt;
  }
  v1::StepReport report;
  for (const auto& [key, value] : object.items()) {
    const std::optional<double> number = NumberOf(value);
    if (!number.has_value()) {
      return std::nullopt;
    }
    if (key == "step") {
      report.set_step(value.get<int64_t>());
    } else if (key == "loss") {
      report.set_loss(*number);
    } else if (key == "grad_norm") {
      report.set_grad_norm(*number);
    } else if (key == "learning_rate") {
      report.set_learning_rate(*number);
    } else if (key == "tokens" && value.is_number_integer()) {
      report.set_tokens(value.get<int64_t>());
    } else if (key == "seconds") {
      report.set_seconds(*number);
    } else if (key == "nonfinite" && value.is_number_integer()) {
      report.set_nonfinite(value.get<int64_t>());
    } else if (report.scalars_size() < kMostScalarsOfLine && key.size() <= kMostNameBytes) {
      (*report.mutable_scalars())[key] = *number;
    }
  }
  return report;
}

std::vector<v1::StepReport> ReadMetricsTail(platform::Files& files, const std::string& job,
                                            const MetricsPlace& place) {
  std::vector<v1::StepReport> reports;
  if (place.directory.empty() || !IsOf(files, place.directory, job)) {
    return reports;
  }
  for (const absl::string_view line :
       absl::StrSplit(TailOf(files, place.directory + "/metrics.jsonl"), '\n')) {
    std::optional<v1::StepReport> report = ReportOfLine({line.data(), line.size()});
    if (report.has_value() && report->step() >= place.first_step && report->step() <= place.last_step) {
      reports.push_back(*std::move(report));
    }
  }
  return reports;
}

}  // namespace tandem::worker
