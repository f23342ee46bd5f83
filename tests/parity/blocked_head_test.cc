// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "tests/parity/expect_close.h"
#include "tests/parity/expect_same.h"
#include "tests/parity/job.h"
#include "tests/parity/run.h"

namespace tandem::parity {
namespace {

// Jobs whose head computes its logits block by block (matrix_test.cc has them on many ranks).

TEST(BlockedHeadTest, LogitsInBlocksTrainAsThoseThatAreKept) {
  for (const bool tied : {false, true}) {
    SCOPED_TRACE(tied ? "tied" : "untied");
    JobOptions options{.ranks = 2,
                       .microbatches_per_rank = 2,
                       .steps = 4,
                       .tied = tied,
                       .fp64 = true,
                       .validate_every_steps = 2};
    const JobRun kept = RunJob(MakeJob(options));
    options.recompute_head = true;
    const plan::JobPlan plan = MakeJob(options);
    ExpectClose(plan, kept, RunJob(plan, {.fill_with_nan = true}), kFp64);
  }
}

TEST(BlockedHeadTest, SchedulesAndRecomputedLayersGiveTheSameBits) {
  JobOptions options{.ranks = 2, .microbatches_per_rank = 3, .steps = 3, .recompute_head = true};
  const JobRun sequential = RunJob(MakeJob(options));
  options.overlap = true;
  ExpectSameBits(sequential, RunJob(MakeJob(options), {.fill_with_nan = true}));
  options.recompute = "layer";
  ExpectSameBits(sequential, RunJob(MakeJob(options), {.fill_with_nan = true}));
}

}  // namespace
}  // namespace tandem::parity
