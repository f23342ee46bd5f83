// SPDX-License-Identifier: Apache-2.0
#include "schedules/check/check.h"

#include <vector>

#include "schedules/check/agreed.h"
#include "schedules/check/apart.h"
#include "schedules/check/formed.h"
#include "schedules/check/meant.h"
#include "schedules/check/ordered.h"
#include "schedules/check/run_clocks.h"

namespace tandem::schedules {

absl::Status CheckStage(const Outline& outline, const BuildOptions& options, const StagePrograms& stage) {
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
  }
  if (absl::Status status = CheckAgreed(outline, options, stage); !status.ok()) {
    return status;
  }
  return CheckMeant(outline, options, stage);
}

}  // namespace tandem::schedules
