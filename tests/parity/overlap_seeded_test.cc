// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cstdint>
#include <iostream>
#include <set>

#include "tests/device/seeded_scheduler.h"
#include "tests/parity/expect_same.h"
#include "tests/parity/job.h"
#include "tests/parity/run.h"

namespace tandem::parity {
namespace {

// Two ranks that share experts, four microbatches: the programs of
// tests/schedules/golden/overlapped_train.txt, of a real model, one instruction at a time in hundreds of
// orders that they allow.

constexpr uint64_t kFirstSeed = 20261122;
constexpr int kSeeds = 200;

JobOptions OfLayers(int layers) {
  return {.ranks = 2,
          .expert_parallel = 2,
          .microbatches_per_rank = 4,
          .steps = 2,
          .layers = layers,
          .hidden = 8,
          .inner = 8,
          .heads = 2,
          .kv_heads = 1,
          .sequence_length = 4,
          .model_type = "mixtral",
          .num_experts = 4};
}

void ExpectSameBitsInAnyOrder(const JobRun& expected, const JobOptions& options) {
  const plan::JobPlan plan = MakeJob(options);
  std::set<uint64_t> orders;
  for (uint64_t seed = kFirstSeed; seed < kFirstSeed + kSeeds; ++seed) {
    device::SeededScheduler scheduler(options.ranks, seed);
    ASSERT_EQ(FirstDifference(expected, RunJob(plan, {.fill_with_nan = true, .scheduler = &scheduler})), "")
        << "seed " << seed;
    orders.insert(scheduler.order_digest());
  }
  EXPECT_GE(orders.size(), kSeeds * 9 / 10) << "the seeds hardly change anything";
}

TEST(ExpertParallelSeededTest, AnyOrderGivesTheSequentialSchedulesBits) {
  std::cout << "seeds from " << kFirstSeed << "\n";
  for (const int layers : {2, 3}) {
    JobOptions options = OfLayers(layers);
    const JobRun sequential = RunJob(MakeJob(options));
    options.overlap = true;
    for (const bool delays : {false, true}) {
      SCOPED_TRACE(testing::Message() << layers << " layers, delayed weight gradients: " << delays);
      options.delay_weight_gradients = delays;
      ExpectSameBitsInAnyOrder(sequential, options);
    }
  }
}

// Exact chunks, whose sizes are exchanged first, and layers that the backward computes again.
TEST(ExpertParallelSeededTest, ExactChunksAndRecomputationHaveTheSameBits) {
  JobOptions options = OfLayers(2);
  options.chunks = "exact";
  const JobRun sequential = RunJob(MakeJob(options));
  options.overlap = true;
  options.delay_weight_gradients = true;
  options.recompute = "layer";
  ExpectSameBitsInAnyOrder(sequential, options);
}

// The sequential schedule with experts' weight gradients on a stream of their own.
TEST(ExpertParallelSeededTest, SeparateWeightGradientsHaveTheSameBits) {
  JobOptions options = OfLayers(2);
  const JobRun sequential = RunJob(MakeJob(options));
  options.separate_weight_gradients = true;
  ExpectSameBitsInAnyOrder(sequential, options);
}

}  // namespace
}  // namespace tandem::parity
