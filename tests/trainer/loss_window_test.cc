// SPDX-License-Identifier: Apache-2.0
#include "trainer/loss_window.h"

#include <gtest/gtest.h>

#include <limits>

namespace tandem::trainer {
namespace {

// Losses of 2 and 3 by turns: the mean is 2.5 and the deviation 0.5.
LossWindow WindowOf(int losses) {
  LossWindow window;
  for (int i = 0; i < losses; ++i) {
    EXPECT_FALSE(window.Add(2 + i % 2).has_value());
  }
  return window;
}

TEST(LossWindowTest, LossSixDeviationsHighIsASpike) {
  EXPECT_FALSE(WindowOf(16).Add(5.5).has_value());
  LossWindow window = WindowOf(16);
  const std::optional<Spread> before = window.Add(5.6);
  ASSERT_TRUE(before.has_value());
  EXPECT_DOUBLE_EQ(before->mean, 2.5);
  EXPECT_DOUBLE_EQ(before->deviation, 0.5);
  EXPECT_DOUBLE_EQ(before->limit(), 5.5);
  EXPECT_FALSE(window.Add(5.6).has_value()) << "the first one counts among those before the second";
  EXPECT_FALSE(window.Add(-100).has_value()) << "a loss that falls is none";
}

TEST(LossWindowTest, FewOrOldLossesSayNothing) {
  EXPECT_FALSE(WindowOf(15).Add(100).has_value());
  LossWindow window;
  EXPECT_FALSE(window.Add(1000).has_value());
  for (int i = 0; i < 128; ++i) {
    EXPECT_FALSE(window.Add(2 + i % 2).has_value());
  }
  EXPECT_TRUE(window.Add(5.6).has_value());
}

TEST(LossWindowTest, LossesThatHardlyDifferMakeNoSpikes) {
  LossWindow window;
  for (int i = 0; i < 40; ++i) {
    EXPECT_FALSE(window.Add(2).has_value());
  }
  EXPECT_FALSE(window.Add(2.05).has_value());
  EXPECT_TRUE(window.Add(2.2).has_value());
}

TEST(LossWindowTest, NonfiniteLossDoesNotCount) {
  LossWindow window = WindowOf(15);
  EXPECT_FALSE(window.Add(std::numeric_limits<double>::quiet_NaN()).has_value());
  EXPECT_FALSE(window.Add(std::numeric_limits<double>::infinity()).has_value());
  EXPECT_FALSE(window.Add(100).has_value()) << "15 count";
}

}  // namespace
}  // namespace tandem::trainer
