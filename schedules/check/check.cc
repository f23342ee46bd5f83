// SPDX-License-Identifier: Apache-2.0
#include "schedules/check/check.h"

#include <vector>

#include "schedules/check/agreed.h"
#include "schedules/check/apart.h"
#include "schedules/check/division.h"
#include "schedules/check/formed.h"
#include "schedules/check/graphed.h"
#include "schedules/check/meant.h"
#include "schedules/check/ordered.h"
#include "schedules/check/run_clocks.h"

namespace tandem::schedules {

absl::Status CheckAlone(const Outline& outline, const BuildOptions& options, const StagePrograms& stage) {
  if (absl::Status status = CheckFormed(outline, options, stage); !status.ok()) {
    return status;
  }
  const std::vector<const Program*> programs = stage.All();
  for (const Program* program : programs) {
    const RunClocks clocks(*program, programs);
    if (absl::Status status = CheckOrdered(outline, *program, clocks, programs); !status.ok()) {
      return status;
    }
    if (absl::Status status = CheckApart(outline, *program, clocks); !status.ok()) {
      return status;
    }
    if (absl::Status status = CheckGraphed(outline, options, *program); !status.ok()) {
      return status;
    }
  }
  return CheckAgreed(outline, options, stage);
}

absl::Status CheckStage(const Outline& outline, const BuildOptions& options, const StagePrograms& stage) {
  if (absl::Status status = CheckAlone(outline, options, stage); !status.ok()) {
    return status;
  }
  return CheckMeant(outline, options, stage);
}

absl::Status CheckStages(const Outline& undivided, const BuildOptions& options,
                         absl::Span<const Stage> stages, absl::Span<const StagePrograms> programs) {
  if (absl::Status status = CheckDivision(undivided, stages); !status.ok()) {
    return status;
  }
  std::vector<const StagePrograms*> by_stage;
  for (size_t s = 0; s < stages.size(); ++s) {
    const Stage& stage = stages[s];
    if (absl::Status status = CheckAlone(stage.outline, OptionsOf(options, stage.origin), programs[s]);
        !status.ok()) {
      return status;
    }
    by_stage.push_back(&programs[s]);
  }
  return CheckMeant(undivided, options, stages, by_stage);
}

}  // namespace tandem::schedules
