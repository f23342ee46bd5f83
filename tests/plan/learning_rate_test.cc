// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "plan/job_plan.h"

namespace tandem::plan {
namespace {

TEST(LearningRateTest, RisesLinearlyToTheFullRateAtTheLastWarmupStep) {
  const OptimizerConfig config{.learning_rate = 1.0, .warmup_steps = 4};
  EXPECT_DOUBLE_EQ(LearningRate(config, 1, 100), 0.25);
  EXPECT_DOUBLE_EQ(LearningRate(config, 2, 100), 0.5);
  EXPECT_DOUBLE_EQ(LearningRate(config, 4, 100), 1.0);
  EXPECT_DOUBLE_EQ(LearningRate(config, 5, 100), 1.0);
  EXPECT_DOUBLE_EQ(LearningRate(config, 100, 100), 1.0);
}

TEST(LearningRateTest, CosineFallsToTheMinimumAtTheLastStep) {
  const OptimizerConfig config{
      .learning_rate = 1.0, .warmup_steps = 10, .decay = Decay::kCosine, .min_learning_rate = 0.2};
  EXPECT_DOUBLE_EQ(LearningRate(config, 10, 110), 1.0);
  EXPECT_DOUBLE_EQ(LearningRate(config, 60, 110), 0.6);
  EXPECT_DOUBLE_EQ(LearningRate(config, 110, 110), 0.2);
  for (int64_t step = 11; step <= 110; ++step) {
    EXPECT_LT(LearningRate(config, step, 110), LearningRate(config, step - 1, 110));
  }
}

TEST(LearningRateTest, WithoutWarmupTheFirstStepIsAlreadyOnTheCurve) {
  const OptimizerConfig config{.learning_rate = 1.0, .decay = Decay::kCosine};
  EXPECT_LT(LearningRate(config, 1, 10), 1.0);
  EXPECT_GT(LearningRate(config, 1, 10), 0.97);
  EXPECT_NEAR(LearningRate(config, 10, 10), 0.0, 1e-15);
}

TEST(LearningRateTest, AWarmupAsLongAsTheJobNeverDecays) {
  const OptimizerConfig config{.learning_rate = 1.0, .warmup_steps = 10, .decay = Decay::kCosine};
  EXPECT_DOUBLE_EQ(LearningRate(config, 10, 10), 1.0);
  EXPECT_DOUBLE_EQ(LearningRate(config, 5, 10), 0.5);
}

}  // namespace
}  // namespace tandem::plan
