// SPDX-License-Identifier: Apache-2.0
#include "plan/learning_rate.h"

#include <gtest/gtest.h>

#include <cmath>

namespace tandem::plan {
namespace {

TEST(LearningRateTest, RisesLinearlyUntilTheLastWarmupStep) {
  for (const v1::Decay decay :
       {v1::DECAY_CONSTANT, v1::DECAY_COSINE, v1::DECAY_LINEAR, v1::DECAY_WSD, v1::DECAY_INVERSE_SQRT}) {
    const LearningRateSchedule schedule{.peak = 1.0, .warmup_steps = 4, .decay = decay, .decay_steps = 10};
    EXPECT_DOUBLE_EQ(LearningRate(schedule, 1, 100), 0.25);
    EXPECT_DOUBLE_EQ(LearningRate(schedule, 2, 100), 0.5);
    EXPECT_DOUBLE_EQ(LearningRate(schedule, 4, 100), 1.0);
  }
  const LearningRateSchedule constant{.peak = 1.0, .warmup_steps = 4};
  EXPECT_DOUBLE_EQ(LearningRate(constant, 5, 100), 1.0);
  EXPECT_DOUBLE_EQ(LearningRate(constant, 100, 100), 1.0);
}

TEST(LearningRateTest, CosineAndLinearEndAtTheMinimum) {
  LearningRateSchedule schedule{.peak = 1.0, .warmup_steps = 10, .minimum = 0.2};
  for (const v1::Decay decay : {v1::DECAY_COSINE, v1::DECAY_LINEAR}) {
    schedule.decay = decay;
    EXPECT_DOUBLE_EQ(LearningRate(schedule, 10, 110), 1.0);
    EXPECT_DOUBLE_EQ(LearningRate(schedule, 60, 110), 0.6);
    EXPECT_DOUBLE_EQ(LearningRate(schedule, 110, 110), 0.2);
    EXPECT_DOUBLE_EQ(LearningRate(schedule, 120, 110), 0.2);
    for (int step = 11; step <= 110; ++step) {
      EXPECT_LT(LearningRate(schedule, step, 110), LearningRate(schedule, step - 1, 110));
    }
  }
  EXPECT_DOUBLE_EQ(LearningRate(schedule, 35, 110), 0.8) << "of linear, a quarter of the way";
}

TEST(LearningRateTest, WithoutWarmupTheFirstStepIsDecayed) {
  const LearningRateSchedule schedule{.peak = 1.0, .decay = v1::DECAY_COSINE};
  EXPECT_LT(LearningRate(schedule, 1, 10), 1.0);
  EXPECT_GT(LearningRate(schedule, 1, 10), 0.97);
  EXPECT_NEAR(LearningRate(schedule, 10, 10), 0.0, 1e-15);
  EXPECT_DOUBLE_EQ(LearningRate({.peak = 1.0, .decay = v1::DECAY_LINEAR}, 1, 10), 0.9);
}

TEST(LearningRateTest, WarmupAsLongAsTheJobNeverDecays) {
  const LearningRateSchedule schedule{.peak = 1.0, .warmup_steps = 10, .decay = v1::DECAY_COSINE};
  EXPECT_DOUBLE_EQ(LearningRate(schedule, 10, 10), 1.0);
  EXPECT_DOUBLE_EQ(LearningRate(schedule, 5, 10), 0.5);
}

TEST(LearningRateTest, WsdFallsInTheLastStepsAlone) {
  LearningRateSchedule schedule{
      .peak = 1.0, .warmup_steps = 10, .decay = v1::DECAY_WSD, .minimum = 0.2, .decay_steps = 16};
  for (const v1::DecayShape shape : {v1::DECAY_SHAPE_LINEAR, v1::DECAY_SHAPE_SQRT}) {
    schedule.decay_shape = shape;
    EXPECT_DOUBLE_EQ(LearningRate(schedule, 10, 100), 1.0);
    EXPECT_DOUBLE_EQ(LearningRate(schedule, 84, 100), 1.0);
    EXPECT_LT(LearningRate(schedule, 85, 100), 1.0);
    EXPECT_DOUBLE_EQ(LearningRate(schedule, 100, 100), 0.2);
    EXPECT_DOUBLE_EQ(LearningRate(schedule, 101, 100), 0.2);
  }
  EXPECT_DOUBLE_EQ(LearningRate(schedule, 88, 100), 0.6) << "1 - √(4 / 16) is a half";
  schedule.decay_shape = v1::DECAY_SHAPE_LINEAR;
  EXPECT_DOUBLE_EQ(LearningRate(schedule, 88, 100), 0.8);
}

TEST(LearningRateTest, InverseSqrtFallsDownToTheMinimum) {
  LearningRateSchedule schedule{
      .peak = 1.0, .warmup_steps = 25, .decay = v1::DECAY_INVERSE_SQRT, .minimum = 0.2};
  EXPECT_DOUBLE_EQ(LearningRate(schedule, 25, 1000), 1.0);
  EXPECT_DOUBLE_EQ(LearningRate(schedule, 100, 1000), 0.5);
  EXPECT_DOUBLE_EQ(LearningRate(schedule, 100, 100), 0.5) << "whatever the number of steps";
  EXPECT_DOUBLE_EQ(LearningRate(schedule, 900, 1000), 0.2);
  schedule.warmup_steps = 0;
  EXPECT_DOUBLE_EQ(LearningRate(schedule, 1, 1000), 1.0);
  EXPECT_DOUBLE_EQ(LearningRate(schedule, 2, 1000), std::sqrt(0.5));
}

TEST(LearningRateTest, APlanSaysItInWords) {
  EXPECT_EQ(LearningRateText({.peak = 3e-4}, 100), "0.0003");
  EXPECT_EQ(LearningRateText({.peak = 3e-4, .warmup_steps = 10}, 100), "0.0003 at step 10");
  EXPECT_EQ(
      LearningRateText({.peak = 1e-3, .warmup_steps = 20, .decay = v1::DECAY_COSINE, .minimum = 1e-5}, 2000),
      "0.001 at step 20, then cosine to 1e-05 at step 2,000");
  EXPECT_EQ(LearningRateText({.peak = 1, .decay = v1::DECAY_LINEAR}, 100), "1, then linear to 0 at step 100");
  EXPECT_EQ(LearningRateText({.peak = 1,
                              .warmup_steps = 5,
                              .decay = v1::DECAY_WSD,
                              .decay_steps = 10,
                              .decay_shape = v1::DECAY_SHAPE_SQRT},
                             100),
            "1 at step 5, constant to step 90, then sqrt to 0 at step 100");
  EXPECT_EQ(LearningRateText({.peak = 1, .warmup_steps = 25, .decay = v1::DECAY_INVERSE_SQRT}, 100),
            "1 at step 25, then inverse_sqrt to 0.5 at step 100");
}

}  // namespace
}  // namespace tandem::plan
