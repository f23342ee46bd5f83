// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <numeric>
#include <string>

#include "tests/parity/expect_same.h"
#include "tests/parity/job.h"
#include "tests/parity/run.h"

namespace tandem::parity {
namespace {

// Sparse layers in jobs: their numbers are those of one rank, whoever shares the work (matrix_test.cc has
// every placement).

JobOptions Mixtral(int64_t steps) { return {.steps = steps, .model_type = "mixtral", .num_experts = 4}; }

// What a microbatch's tokens are dealt depends on nothing else.
TEST(ExpertsTest, DealtTokensSpreadEvenlyOnAnyRanks) {
  JobOptions options = Mixtral(4);
  options.balanced_routing = true;
  const JobRun one = ExpectSameBitsOnRanks(options, {2, 4});
  const int64_t tokens = 12 * options.micro_batch_size * options.sequence_length * options.experts_per_token /
                         options.num_experts;
  for (const v1::StepReport& step : one.steps) {
    ASSERT_EQ(step.norms().experts_size(), 2);
    for (const v1::ExpertLoad& load : step.norms().experts()) {
      EXPECT_THAT(load.tokens(), testing::Each(tokens));
    }
  }
  options.expert_parallel = 2;
  for (const bool overlap : {false, true}) {
    options.overlap = overlap;
    const JobRun shared = RunOn(2, options);
    for (const v1::StepReport& step : shared.steps) {
      for (const v1::ExpertLoad& load : step.norms().experts()) {
        EXPECT_THAT(load.tokens(), testing::Each(tokens));
      }
    }
  }
}

// Rooms are for the tokens of a microbatch: which ranks share the microbatches does not matter.
TEST(ExpertsTest, DroppedTokensAreReportedAlikeOnAnyRanks) {
  JobOptions options = Mixtral(6);
  options.capacity_factor = 0.75;
  const JobRun one = ExpectSameBitsOnRanks(options, {2, 4});
  EXPECT_LT(one.steps.back().loss(), one.steps.front().loss());
  const int64_t choices = 12 * options.micro_batch_size * options.sequence_length * options.experts_per_token;
  for (const v1::StepReport& step : one.steps) {
    for (const v1::ExpertLoad& load : step.norms().experts()) {
      EXPECT_GE(load.dropped(), choices / 4);
      EXPECT_EQ(std::accumulate(load.tokens().begin(), load.tokens().end(), load.dropped()), choices);
    }
  }
  options.recompute = "layer";
  options.overlap = true;
  ExpectSameBits(one, RunOn(2, options));
}

// Of every step and sparse layer: which rank has which token is known on all, and adds up to all choices.
TEST(ExpertsTest, ReportsSayWhereEveryTokenWent) {
  JobOptions options = Mixtral(2);
  options.ranks = 2;
  options.microbatches_per_rank = 3;
  const JobRun run = RunJob(MakeJob(options));
  const int64_t choices =
      2 * 3 * options.micro_batch_size * options.sequence_length * options.experts_per_token;
  for (const v1::StepReport& step : run.steps) {
    ASSERT_EQ(step.norms().experts_size(), 2);
    for (int layer = 0; layer < 2; ++layer) {
      const v1::ExpertLoad& load = step.norms().experts(layer);
      EXPECT_EQ(load.layer(), layer);
      ASSERT_EQ(load.tokens_size(), 4);
      EXPECT_EQ(std::accumulate(load.tokens().begin(), load.tokens().end(), int64_t{0}), choices);
      EXPECT_EQ(load.dropped(), 0);
      EXPECT_GE(load.balance_loss(), 0.9);  // 1 where the load is even
      EXPECT_LE(load.balance_loss(), 4.0);  // as many as there are experts
      EXPECT_GT(load.z_loss(), 0);
    }
    EXPECT_EQ(step.scalars().at("moe_z_loss"),
              (step.norms().experts(0).z_loss() + step.norms().experts(1).z_loss()) / 2);
  }
}

}  // namespace
}  // namespace tandem::parity
