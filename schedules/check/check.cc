// SPDX-License-Identifier: Apache-2.0
#include "schedules/check/check.h"

#include <vector>

#include "platform/status_macros.h"
#include "schedules/check/rules.h"
#include "schedules/check/run_clocks.h"

namespace tandem::schedules {

absl::Status CheckAlone(const Outline& outline, const BuildOptions& options, const StagePrograms& stage) {
  TANDEM_RETURN_IF_ERROR(CheckFormed(outline, options, stage));
  const std::vector<const Program*> programs = stage.All();
  for (const Program* program : programs) {
    const RunClocks clocks(*program, programs);
    TANDEM_RETURN_IF_ERROR(CheckOrdered(outline, *program, clocks, programs));
    TANDEM_RETURN_IF_ERROR(CheckApart(outline, *program, clocks));
    TANDEM_RETURN_IF_ERROR(CheckGraphed(outline, options, *program));
  }
  return CheckAgreed(outline, options, stage);
}

absl::Status CheckStage(const Outline& outline, const BuildOptions& options, const StagePrograms& stage) {
  TANDEM_RETURN_IF_ERROR(CheckAlone(outline, options, stage));
  return CheckMeant(outline, options, stage);
}

absl::Status CheckStages(const Outline& undivided, const BuildOptions& options,
                         absl::Span<const Stage> stages, absl::Span<const StagePrograms> programs) {
  TANDEM_RETURN_IF_ERROR(CheckDivision(undivided, stages));
  std::vector<const StagePrograms*> by_stage;
  for (size_t s = 0; s < stages.size(); ++s) {
    const Stage& stage = stages[s];
    TANDEM_RETURN_IF_ERROR(CheckAlone(stage.outline, OptionsOf(options, stage.origin), programs[s]));
    by_stage.push_back(&programs[s]);
  }
  return CheckMeant(undivided, options, stages, by_stage);
}

}  // namespace tandem::schedules
