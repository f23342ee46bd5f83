// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <utility>

#include "tests/parity/expect_close.h"
#include "tests/parity/expect_same.h"
#include "tests/parity/job.h"
#include "tests/parity/run.h"

namespace tandem::parity {
namespace {

// Jobs whose head computes its logits block by block (matrix_test.cc has them on many ranks).

// What of the loss's gradient flows back is added over the blocks, and rounded once.
TEST(BlockedHeadTest, LogitsInBlocksTrainAsThoseThatAreKept) {
  for (const bool tied : {false, true}) {
    for (const bool fp64 : {false, true}) {
      SCOPED_TRACE(testing::Message() << (tied ? "tied" : "untied") << (fp64 ? ", fp64" : ", fp32"));
      JobOptions options{.ranks = 2,
                         .microbatches_per_rank = 2,
                         .steps = 4,
                         .tied = tied,
                         .fp64 = fp64,
                         .validate_every_steps = 2};
      const JobRun kept = RunJob(MakeJob(options));
      options.recompute_head = true;
      const plan::JobPlan plan = MakeJob(options);
      ExpectClose(plan, kept, RunJob(plan, {.fill_with_nan = true}), fp64 ? kFp64 : kFp32);
    }
  }
}

// As near to the job in fp32 as with logits that are kept, which are rounded on their way.
TEST(BlockedHeadTest, InBfloat16LogitsInBlocksAreAsExactAsThoseThatAreKept) {
  JobOptions options{.ranks = 2, .microbatches_per_rank = 2, .steps = 8};
  const JobRun exact = RunJob(MakeJob(options));
  const auto distances = [&] {
    const JobRun run = RunJob(MakeJob(options), {.fill_with_nan = true});
    std::pair<double, double> sums;
    for (size_t i = 0; i < exact.steps.size(); ++i) {
      sums.first += std::abs(run.steps[i].loss() - exact.steps[i].loss());
      sums.second += std::abs(run.steps[i].grad_norm() - exact.steps[i].grad_norm());
    }
    return sums;
  };
  options.precision = "compute: COMPUTE_TYPE_BF16";
  const auto kept = distances();
  options.recompute_head = true;
  const auto in_blocks = distances();
  std::printf("losses off by %g, kept %g; norms by %g, kept %g\n", in_blocks.first, kept.first,
              in_blocks.second, kept.second);
  EXPECT_LE(in_blocks.first, 2 * kept.first);
  EXPECT_LE(in_blocks.second, 2 * kept.second);
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
