// SPDX-License-Identifier: Apache-2.0
#include "trainer/metrics_file.h"

#include <map>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "nlohmann/json.hpp"
#include "platform/filter_lines.h"
#include "trainer/directory_error.h"

namespace tandem::trainer {
namespace {

constexpr char kCannotKeep[] = "cannot keep metrics there";

std::string PathIn(const std::string& directory) { return directory + "/metrics.jsonl"; }

constexpr size_t kMostLineBytes = 1 << 20;  // a step has at most some hundred scalars

// A whole line of an earlier step.
bool IsBefore(int64_t step, std::string_view line) {
  const nlohmann::json object = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
  return object.is_object() && object.contains("step") && object["step"].is_number_integer() &&
         object["step"].get<int64_t>() < step;
}

}  // namespace

MetricsFile::MetricsFile(platform::Files& files, const std::string& directory, checkpoint::Owner self,
                         int64_t first_step)
    : file_(files, directory, std::move(self), "metrics",
            [path = PathIn(directory)] { return FollowedFile::Place{.path = path, .header = ""}; }) {
  const absl::Status cut = platform::FilterLines(
      PathIn(directory), kMostLineBytes, [&](std::string_view line) { return IsBefore(first_step, line); });
  if (!absl::IsNotFound(cut)) {
    ThrowIfUnwritable(kCannotKeep, cut);
  }
  ThrowIfUnwritable(kCannotKeep, file_.Open());
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
  file_.Append(line.dump() + "\n");
}

}  // namespace tandem::trainer
