// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest-spi.h>
#include <gtest/gtest.h>

#include <limits>

#include "plan/job_plan.h"
#include "tests/parity/expect_close.h"
#include "tests/parity/expect_same.h"
#include "tests/parity/run.h"

namespace tandem::parity {
namespace {

// What the comparisons of runs see: a difference that they pass over is one that no parity test can find.

// Two steps, with validations before the first and after the second.
JobRun Validated(double before, double after) {
  JobRun run;
  (*run.start.emplace().mutable_scalars())["validation_loss"] = before;
  run.steps.resize(2);
  run.steps[0].set_step(1);
  run.steps[0].set_loss(3);
  run.steps[1].set_step(2);
  run.steps[1].set_loss(2);
  (*run.steps[1].mutable_scalars())["validation_loss"] = after;
  return run;
}

TEST(FirstDifferenceTest, IsInAnyValidationLossEvenIfMissing) {
  const JobRun run = Validated(4, 2.5);
  EXPECT_EQ(FirstDifference(run, run), "");
  EXPECT_EQ(FirstDifference(run, Validated(4.5, 2.5)), "step 0: validation loss 4 and 4.5");
  EXPECT_EQ(FirstDifference(run, Validated(4, 2.75)), "step 2: validation loss 2.5 and 2.75");
  JobRun without = run;
  without.steps[1].mutable_scalars()->clear();
  EXPECT_EQ(FirstDifference(run, without), "step 2: validation loss 2.5 and none");
  EXPECT_EQ(FirstDifference(without, run), "step 2: validation loss none and 2.5");
  without = run;
  without.start.reset();
  EXPECT_EQ(FirstDifference(run, without), "step 0: only the first run has it");
  EXPECT_EQ(FirstDifference(without, run), "step 0: only the second run has it");
}

TEST(ExpectCloseTest, ComparesEveryValidationLossEvenIfMissing) {
  const plan::JobPlan plan{};
  const JobRun run = Validated(4, 2.5);
  ExpectClose(plan, run, run, kFp32);
  ExpectClose(plan, run, Validated(4 * (1 + 1e-6), 2.5), kFp32);
  EXPECT_NONFATAL_FAILURE(ExpectClose(plan, run, Validated(4.5, 2.5), kFp32), "validation loss: 4 and 4.5");
  EXPECT_NONFATAL_FAILURE(ExpectClose(plan, run, Validated(4, 2.75), kFp32), "validation loss: 2.5 and 2.75");
  JobRun without = run;
  without.steps[1].mutable_scalars()->clear();
  EXPECT_NONFATAL_FAILURE(ExpectClose(plan, run, without, kFp32), "only one run has a validation loss");
  without = run;
  without.start.reset();
  EXPECT_NONFATAL_FAILURE(ExpectClose(plan, without, run, kFp32), "only one run has a step 0");
}

TEST(ExpectCloseTest, SeesANonfiniteNumberInOneRun) {
  const plan::JobPlan plan{};
  const JobRun run = Validated(4, 2.5);
  for (const double bad :
       {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
    const JobRun other = Validated(4, bad);
    ExpectClose(plan, other, other, kFp32);  // as the norms of a step that both skip
    EXPECT_NONFATAL_FAILURE(ExpectClose(plan, run, other, kFp32), "validation loss: 2.5 and");
    EXPECT_NONFATAL_FAILURE(ExpectClose(plan, other, run, kFp32), "and 2.5");
    EXPECT_EQ(DistanceBetween(plan, run, other).loss, std::numeric_limits<double>::infinity());
    EXPECT_EQ(DistanceBetween(plan, other, run).loss, std::numeric_limits<double>::infinity());
  }
}

TEST(ExpectCloseTest, SeesOtherCountsOfTokensAndNonfiniteElements) {
  const plan::JobPlan plan{};
  const JobRun run = Validated(4, 2.5);
  JobRun other = run;
  other.steps[1].set_tokens(7);
  EXPECT_NONFATAL_FAILURE(ExpectClose(plan, run, other, kFp32), "tokens");
  EXPECT_EQ(FirstDifference(run, other), "step 2: 0 and 7 tokens, 0 and 0 elements that are not finite");
  other = run;
  other.steps[0].set_nonfinite(2);
  EXPECT_NONFATAL_FAILURE(ExpectClose(plan, run, other, kFp32), "nonfinite");
  EXPECT_EQ(FirstDifference(run, other), "step 1: 0 and 0 tokens, 0 and 2 elements that are not finite");
}

TEST(ExpectCloseTest, SeesInFp64AnExpertWithOtherTokens) {
  plan::JobPlan plan{};
  plan.precision = model::ComputeType::kFp64;
  JobRun run = Validated(4, 2.5);
  v1::ExpertLoad& load = *run.steps[1].mutable_norms()->add_experts();
  load.add_tokens(3);
  load.add_tokens(5);
  ExpectClose(plan, run, run, kFp64);
  JobRun other = run;
  other.steps[1].mutable_norms()->mutable_experts(0)->set_tokens(1, 4);
  EXPECT_NONFATAL_FAILURE(ExpectClose(plan, run, other, kFp64), "tokens of the experts of layer 0");
  other = run;
  other.steps[1].mutable_norms()->mutable_experts(0)->set_dropped(1);
  EXPECT_NONFATAL_FAILURE(ExpectClose(plan, run, other, kFp64), "layer 0");
}

}  // namespace
}  // namespace tandem::parity
