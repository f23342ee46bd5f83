// SPDX-License-Identifier: Apache-2.0
#include "trainer/metrics_file.h"

#include <map>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "nlohmann/json.hpp"
#include "platform/filter_lines.h"
#include "trainer/failure.h"
#include "trainer/spikes.h"

namespace tandem::trainer {
namespace {

constexpr char kCannotKeep[] = "cannot keep metrics there";

std::string PathIn(const std::string& directory) { return directory + "/metrics.jsonl"; }

constexpr size_t kMostLineBytes = 1 << 20;  // a step has at most some hundred scalars

// Of an earlier step.
bool IsBefore(int64_t step, const nlohmann::json& object) {
  return object.is_object() && object.contains("step") && object["step"].is_number_integer() &&
         object["step"].get<int64_t>() < step;
}

}  // namespace

MetricsFile::MetricsFile(platform::Files& files, const std::string& directory, checkpoint::Owner self,
                         int64_t first_step)
    : file_(files, directory, std::move(self), "metrics",
            [path = PathIn(directory)] { return FollowedFile::Place{.path = path, .header = ""}; }) {
  const absl::Status cut =
      platform::FilterLines(PathIn(directory), kMostLineBytes, [&](std::string_view text) {
        const nlohmann::json line = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
        if (!IsBefore(first_step, line)) {
          return false;
        }
        if (const auto loss = line.value("loss", nlohmann::json());
            loss.is_number() && line.value("grad_norm", nlohmann::json()).is_number()) {
          losses_before_.push_back(loss.get<double>());
        }
        return true;
      });
  if (losses_before_.size() > Spread::kMost) {
    losses_before_.erase(losses_before_.begin(), losses_before_.end() - Spread::kMost);
  }
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
