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

TEST(ExpertsTest, OneTwoThreeAndFourRanksGiveTheSameBits) {
  const JobRun one = RunOn(1, Mixtral(10));
  ASSERT_EQ(one.steps.size(), 10u);
  EXPECT_LT(one.steps.back().loss(), one.steps.front().loss());
  for (const int ranks : {2, 3, 4}) {
    SCOPED_TRACE(ranks);
    ExpectSameBits(one, RunOn(ranks, Mixtral(10)));
  }
}

TEST(ExpertsTest, DeepseekV3GivesTheSameBitsOnOneTwoAndFourRanks) {
  const JobOptions options{.steps = 6, .model_type = "deepseek_v3", .num_experts = 8, .experts_per_token = 4};
  const JobRun one = RunOn(1, options);
  EXPECT_LT(one.steps.back().loss(), one.steps.front().loss());
  for (const int ranks : {2, 4}) {
    SCOPED_TRACE(ranks);
    ExpectSameBits(one, RunOn(ranks, options));
  }
}

// What a microbatch's tokens are dealt depends on nothing else.
TEST(ExpertsTest, DealtTokensAreSpreadEvenlyAndAlikeOnAnyRanks) {
  JobOptions options = Mixtral(4);
  options.balanced_routing = true;
  const JobRun one = RunOn(1, options);
  const int64_t tokens = 12 * options.micro_batch_size * options.sequence_length * options.experts_per_token /
                         options.num_experts;
  for (const v1::StepReport& step : one.steps) {
    ASSERT_EQ(step.norms().experts_size(), 2);
    for (const v1::ExpertLoad& load : step.norms().experts()) {
      EXPECT_THAT(load.tokens(), testing::Each(tokens));
    }
  }
  for (const int ranks : {2, 4}) {
    SCOPED_TRACE(ranks);
    ExpectSameBits(one, RunOn(ranks, options));
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
TEST(ExpertsTest, DroppedTokensAreTheSameOnAnyRanksAndReported) {
  JobOptions options = Mixtral(6);
  options.capacity_factor = 0.75;
  const JobRun one = RunOn(1, options);
  EXPECT_LT(one.steps.back().loss(), one.steps.front().loss());
  const int64_t choices = 12 * options.micro_batch_size * options.sequence_length * options.experts_per_token;
  for (const v1::StepReport& step : one.steps) {
    for (const v1::ExpertLoad& load : step.norms().experts()) {
      EXPECT_GE(load.dropped(), choices / 4);
      EXPECT_EQ(std::accumulate(load.tokens().begin(), load.tokens().end(), load.dropped()), choices);
    }
  }
  for (const int ranks : {2, 4}) {
    SCOPED_TRACE(ranks);
    ExpectSameBits(one, RunOn(ranks, options));
  }
  options.recompute = "layer";
  options.overlap = true;
  ExpectSameBits(one, RunOn(2, options));
}

TEST(ExpertsTest, DroppedTokensAreTheSameWhereRanksShareTheExperts) {
  JobOptions options = Mixtral(3);
  options.fp64 = true;
  options.ranks = 2;
  options.capacity_factor = 0.75;
  const JobRun every = RunJob(MakeJob(options));
  options.expert_parallel = 2;
  options.overlap = true;
  const JobRun shared = RunJob(MakeJob(options));
  for (size_t i = 0; i < every.steps.size(); ++i) {
    for (int layer = 0; layer < 2; ++layer) {
      const v1::ExpertLoad& load = shared.steps[i].norms().experts(layer);
      const v1::ExpertLoad& expected = every.steps[i].norms().experts(layer);
      EXPECT_THAT(load.tokens(), testing::ElementsAreArray(expected.tokens()));
      EXPECT_EQ(load.dropped(), expected.dropped());
    }
    EXPECT_NEAR(shared.steps[i].loss(), every.steps[i].loss(), 1e-12 * every.steps[i].loss());
    EXPECT_NEAR(shared.steps[i].grad_norm(), every.steps[i].grad_norm(), 1e-11 * every.steps[i].grad_norm());
  }
}

TEST(ExpertsTest, EveryOrderThatTheProgramAllowsGivesTheSameBits) {
  JobOptions options = Mixtral(2);
  options.ranks = 2;
  options.layers = 1;
  options.microbatches_per_rank = 2;
  const plan::JobPlan plan = MakeJob(options);
  ExpectSameBitsInOrders(RunJob(plan), plan, 10);
}

TEST(ExpertsTest, AResumedJobGoesOnWithTheSameBits) {
  const TemporaryFolder folder;
  JobOptions options = Mixtral(4);
  options.ranks = 2;
  options.checkpoint_directory = folder.path();
  options.checkpoint_every_steps = 2;
  const JobRun whole = RunJob(MakeJob(options));
  const TemporaryFolder other;
  options.ranks = 1;  // the same microbatches
  options.microbatches_per_rank = 2;
  options.checkpoint_directory = other.path();
  options.resume = folder.path() + "/step-2";
  const JobRun resumed = RunJob(MakeJob(options));
  EXPECT_EQ(resumed.resumed_step, 2);
  ExpectSameBits(Tail(whole, 3), resumed);
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

// In bf16 the router computes in fp32, and scores and choices are the same on any ranks.
TEST(ExpertsTest, Bf16GivesTheSameBitsOnAnyRanks) {
  JobOptions options = Mixtral(5);
  options.precision = "compute: COMPUTE_TYPE_BF16 transport: COMPUTE_TYPE_BF16";
  const JobRun one = RunOn(1, options);
  EXPECT_LT(one.steps.back().loss(), one.steps.front().loss());
  for (const int ranks : {2, 4}) {
    SCOPED_TRACE(ranks);
    ExpectSameBits(one, RunOn(ranks, options));
  }
}

}  // namespace
}  // namespace tandem::parity
