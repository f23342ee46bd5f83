// SPDX-License-Identifier: Apache-2.0
#include "tests/parity/step_summary.h"

namespace tandem::parity {

StepSummary SummaryOf(const v1::StepReport& report) {
  const auto list = [](const auto& numbers) { return std::vector<double>(numbers.begin(), numbers.end()); };
  StepSummary summary{.step = report.step(),
                      .loss = report.loss(),
                      .grad_norm = report.grad_norm(),
                      .learning_rate = report.learning_rate(),
                      .tokens = report.tokens(),
                      .seconds = report.seconds(),
                      .nonfinite = report.nonfinite(),
                      .scalars = {report.scalars().begin(), report.scalars().end()},
                      .weight = list(report.norms().weight()),
                      .gradient = list(report.norms().gradient()),
                      .update = list(report.norms().update()),
                      .rms = list(report.norms().rms()),
                      .weight_max = list(report.norms().max_abs()),
                      .gradient_max = list(report.norms().gradient_max_abs()),
                      .update_max = list(report.norms().update_max_abs())};
  for (const v1::ExpertLoad& load : report.norms().experts()) {
    summary.experts.push_back({.layer = load.layer(),
                               .tokens = {load.tokens().begin(), load.tokens().end()},
                               .dropped = load.dropped(),
                               .balance_loss = load.balance_loss(),
                               .z_loss = load.z_loss(),
                               .further_passes = load.further_passes()});
  }
  return summary;
}

}  // namespace tandem::parity
