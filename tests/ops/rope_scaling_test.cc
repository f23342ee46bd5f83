// SPDX-License-Identifier: Apache-2.0
#include "ops/rope_scaling.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

namespace tandem::ops {
namespace {

using testing::DoubleNear;
using testing::ElementsAre;

// Of transformers 5.23 (ROPE_INIT_FUNCTIONS), for heads of 8 dims and theta 10000.
constexpr double kBaseTheta = 10000;

TEST(RopeScalingTest, WithoutScalingFrequenciesArePowersOfTheta) {
  EXPECT_THAT(RopeFrequencies(kBaseTheta, 4, {}),
              ElementsAre(1, DoubleNear(0.1, 1e-12), DoubleNear(0.01, 1e-12), DoubleNear(0.001, 1e-12)));
  EXPECT_EQ(RopeAttentionFactor({}), 1);
}

TEST(RopeScalingTest, LinearDividesAllFrequencies) {
  EXPECT_THAT(RopeFrequencies(kBaseTheta, 2, {.type = RopeScalingType::kLinear, .factor = 4}),
              ElementsAre(0.25, DoubleNear(0.0025, 1e-15)));
}

TEST(RopeScalingTest, Llama3KeepsShortWavesAndStretchesLongOnes) {
  const RopeScaling scaling{.type = RopeScalingType::kLlama3, .factor = 8, .original_length = 100};
  const auto frequencies = RopeFrequencies(kBaseTheta, 4, scaling);
  EXPECT_EQ(frequencies[0], 1);  // 15.9 waves
  const double smooth = (100 * 0.1 / (2 * M_PI) - 1) / 3;
  EXPECT_NEAR(frequencies[1], (1 - smooth) * 0.1 / 8 + smooth * 0.1, 1e-12);  // 1.59 waves
  EXPECT_NEAR(frequencies[2], 0.01 / 8, 1e-12);
  EXPECT_EQ(RopeAttentionFactor(scaling), 1);
}

TEST(RopeScalingTest, YarnInterpolatesDimsBetweenItsBetas) {
  RopeScaling scaling{
      .type = RopeScalingType::kYarn, .factor = 4, .original_length = 1000, .beta_fast = 32, .beta_slow = 1};
  // Dims of 32 turns and of 1 turn: 0.70 and 2.20, which become 0 and 3.
  EXPECT_THAT(RopeFrequencies(kBaseTheta, 4, scaling),
              ElementsAre(1, DoubleNear(0.1 * (2.0 / 3 + 1.0 / 12), 1e-12),
                          DoubleNear(0.01 * (1.0 / 3 + 2.0 / 12), 1e-12), DoubleNear(0.00025, 1e-12)));
  EXPECT_NEAR(RopeAttentionFactor(scaling), 0.1 * std::log(4) + 1, 1e-12);
  scaling.mscale = 2;
  scaling.mscale_all_dim = 1;
  EXPECT_NEAR(RopeAttentionFactor(scaling), (0.2 * std::log(4) + 1) / (0.1 * std::log(4) + 1), 1e-12);
  scaling.attention_factor = 1.25;
  EXPECT_EQ(RopeAttentionFactor(scaling), 1.25);
}

}  // namespace
}  // namespace tandem::ops
