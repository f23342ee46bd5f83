// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include "schedules/build/program_builder.h"
#include "schedules/check/check.h"

namespace tandem::schedules {

// Returns the stage's programs; the test fails if the check refuses them.
inline StagePrograms ProvenStage(const Outline& outline, const BuildOptions& options,
                                 Schedule schedule = Schedule::kSequential) {
  StagePrograms stage = BuildStage(outline, options, schedule).value();
  EXPECT_EQ(IsDivided(outline) ? CheckAlone(outline, options, stage) : CheckStage(outline, options, stage),
            absl::OkStatus());
  return stage;
}

}  // namespace tandem::schedules
