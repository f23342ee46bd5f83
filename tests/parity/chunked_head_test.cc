// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <string>
#include <utility>

#include "tests/parity/expect_close.h"
#include "tests/parity/expect_same.h"
#include "tests/parity/job.h"
#include "tests/parity/run.h"

namespace tandem::parity {
namespace {

// Jobs whose head computes its logits, the loss and all gradients for some tokens at a time, in its forward
// (matrix_test.cc has them on many ranks, autograd_test.cc beside autograd).

// Bytes. Of 32 tokens, chunks have 11 in bf16 (the last 10), 5 in fp32 (the last 2) and 2 in fp64.
constexpr int64_t kFewLogits = 5700;

TEST(ChunkedHeadTest, LogitsInChunksTrainAsWholeLogits) {
  for (const bool tied : {false, true}) {
    for (const char* frozen : {"none", "head", "embedding", "embedding,layers.0,layers.1"}) {
      for (const bool fp64 : {false, true}) {
        SCOPED_TRACE(testing::Message()
                     << (tied ? "tied" : "untied") << (fp64 ? ", fp64" : ", fp32") << ", frozen: " << frozen);
        JobOptions options{.ranks = 2,
                           .microbatches_per_rank = 2,
                           .steps = 4,
                           .tied = tied,
                           .frozen = frozen,
                           .fp64 = fp64,
                           .validate_every_steps = 2};
        const JobRun whole = RunJob(MakeJob(options));
        options.most_logit_bytes = kFewLogits;
        const plan::JobPlan plan = MakeJob(options);
        ExpectClose(plan, whole, RunJob(plan, {.fill_with_nan = true}), fp64 ? kFp64 : kFp32);
      }
    }
  }
}

// As near to the job in fp32 as with all logits at once: sums over chunks are rounded once.
TEST(ChunkedHeadTest, InReducedPrecisionChunksAreAsExact) {
  for (const bool tied : {false, true}) {
    JobOptions options{.ranks = 2, .microbatches_per_rank = 2, .steps = 8, .tied = tied};
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
    for (const char* precision :
         {"compute: COMPUTE_TYPE_BF16", "compute: COMPUTE_TYPE_BF16 transport: COMPUTE_TYPE_FP32",
          "compute: COMPUTE_TYPE_BF16 embedding { compute: COMPUTE_TYPE_FP32 } head { compute: "
          "COMPUTE_TYPE_FP32 }",
          "compute: COMPUTE_TYPE_FP32 embedding { compute: COMPUTE_TYPE_BF16 } head { compute: "
          "COMPUTE_TYPE_BF16 }"}) {
      SCOPED_TRACE(testing::Message() << (tied ? "tied, " : "untied, ") << precision);
      options.precision = precision;
      options.most_logit_bytes = 0;
      const auto whole = distances();
      options.most_logit_bytes = kFewLogits;
      const auto in_chunks = distances();
      std::printf("losses off by %g, whole %g; norms by %g, whole %g\n", in_chunks.first, whole.first,
                  in_chunks.second, whole.second);
      EXPECT_LE(in_chunks.first, 2 * whole.first);
      EXPECT_LE(in_chunks.second, 2 * whole.second);
    }
  }
}

TEST(ChunkedHeadTest, SchedulesAndRecomputedLayersGiveTheSameBits) {
  for (const char* precision : {"", "compute: COMPUTE_TYPE_BF16"}) {
    JobOptions options{.ranks = 2, .microbatches_per_rank = 3, .steps = 3, .precision = precision};
    options.most_logit_bytes = kFewLogits;
    const JobRun sequential = RunJob(MakeJob(options));
    options.overlap = true;
    ExpectSameBits(sequential, RunJob(MakeJob(options), {.fill_with_nan = true}));
    options.delay_weight_gradients = true;
    ExpectSameBits(sequential, RunJob(MakeJob(options), {.fill_with_nan = true}));
    options.recompute = "layer";
    ExpectSameBits(sequential, RunJob(MakeJob(options), {.fill_with_nan = true}));
  }
}

TEST(ChunkedHeadTest, NoHeadBufferHasTheLogitsSize) {
  JobOptions options;
  const int64_t logits = options.micro_batch_size * options.sequence_length * 256 * 4;
  const auto largest = [&] {
    const plan::JobPlan plan = MakeJob(options);
    const schedules::Node& head = plan.outline.nodes.back();
    int64_t bytes = std::max(head.forward.scratch.bound, head.backward_input.scratch.bound);
    for (const schedules::ValueId value : head.forward.writes) {
      bytes = std::max(bytes, plan.outline.values[value].bytes.bound);
    }
    return bytes;
  };
  EXPECT_GE(largest(), logits);
  options.most_logit_bytes = logits / 4;
  EXPECT_LT(largest(), logits / 2);
}

}  // namespace
}  // namespace tandem::parity
