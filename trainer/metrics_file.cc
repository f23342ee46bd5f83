// SPDX-License-Identifier: Apache-2.0
#include "trainer/metrics_file.h"

#include <fcntl.h>

#include <cmath>
#include <map>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"
#include "platform/filter_lines.h"
#include "platform/log.h"
#include "platform/status_macros.h"
#include "trainer/append_whole.h"
#include "trainer/failure.h"

namespace tandem::trainer {
namespace {

void ThrowIfNotOk(const absl::Status& status) {
  if (!status.ok()) {
    throw UserError(absl::StrCat("checkpoint.directory: cannot keep metrics there: ", status.message(),
                                 "; correct that, or use another folder"));
  }
}

constexpr size_t kMostLineBytes = 1 << 20;  // a step has at most some hundred scalars

// A whole line of a step that does not come again after last_step.
bool IsOfStepUpTo(int64_t last_step, std::string_view line) {
  const nlohmann::json object = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
  return last_step > 0 && object.is_object() && object.contains("step") &&
         object["step"].is_number_integer() && object["step"].get<int64_t>() <= last_step;
}

}  // namespace

MetricsFile::MetricsFile(platform::Files& files, const std::string& directory, checkpoint::Owner self,
                         int64_t resumed_step)
    : files_(files), directory_(directory), self_(std::move(self)), path_(directory + "/metrics.jsonl") {
  const absl::Status cut = platform::FilterLines(
      path_, kMostLineBytes, [&](std::string_view line) { return IsOfStepUpTo(resumed_step, line); });
  if (!absl::IsNotFound(cut)) {
    ThrowIfNotOk(cut);
  }
  ThrowIfNotOk(Open());
}

absl::Status MetricsFile::Open() {
  TANDEM_ASSIGN_OR_RETURN(file_, platform::OpenRegularFile(path_, O_WRONLY | O_CREAT | O_APPEND, 0644));
  return absl::OkStatus();
}

void MetricsFile::FollowPath() {
  if (platform::LeadsTo(path_, file_) || !checkpoint::Owns(files_, directory_, self_)) {
    return;
  }
  const absl::Status opened = Open();
  if (!opened.ok()) {
    Complain("metrics.jsonl was removed or replaced, and cannot be opened again",
             std::string(opened.message()));
    return;
  }
  complained_ = false;
  platform::Log(platform::LogLevel::kWarning,
                "metrics.jsonl was removed or replaced; lines go to what has its path now",
                {{"path", path_}});
}

void MetricsFile::Append(const v1::StepReport& report) {
  nlohmann::ordered_json line = {{"step", report.step()}};
  if (report.step() > 0) {  // step 0 is the validation before the first step
    line.update({{"loss", report.loss()},
                 {"grad_norm", report.grad_norm()},
                 {"learning_rate", report.learning_rate()},
                 {"tokens", report.tokens()},
                 {"seconds", report.seconds()},
                 {"nonfinite", report.nonfinite()}});
  }
  // In the order of their names.
  for (const auto& [name, value] :
       std::map<std::string, double>(report.scalars().begin(), report.scalars().end())) {
    line[name] = value;
  }
  const std::string text = line.dump() + "\n";
  FollowPath();
  const absl::Status appended = AppendWhole(file_, text);
  if (!appended.ok()) {
    Complain("cannot write metrics; training goes on without them", std::string(appended.message()));
  }
}

void MetricsFile::Complain(std::string_view message, const std::string& error) {
  if (!std::exchange(complained_, true)) {
    platform::Log(platform::LogLevel::kError, message, {{"path", path_}, {"error", error}});
  }
}

}  // namespace tandem::trainer
