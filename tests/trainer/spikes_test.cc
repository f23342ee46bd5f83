// SPDX-License-Identifier: Apache-2.0
#include "trainer/spikes.h"

#include <gtest/gtest.h>

#include <cmath>
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

// Of the steps 1 to `last`, with logarithms of 0 and 1 by turns.
NormWindow WindowUpTo(int64_t last) {
  NormWindow window({});
  for (int64_t step = 1; step <= last; ++step) {
    window.Computed(step, step % 2 == 0 ? 1 : std::exp(1.0), /*applied=*/true);
  }
  return window;
}

TEST(NormWindowTest, LimitIsSixDeviationsOfLogarithms) {
  // Of 16 norms the mean is 0.5 and the deviation too.
  EXPECT_NEAR(WindowUpTo(17).LimitOf(18).value(), std::exp(0.5 + 6 * 0.5), 1e-9);
}

TEST(NormWindowTest, FewNormsSayNothing) {
  EXPECT_FALSE(WindowUpTo(16).LimitOf(17).has_value());
  EXPECT_FALSE(WindowUpTo(17).LimitOf(17).has_value());
  NormWindow window = WindowUpTo(200);
  const std::optional<double> limit = window.LimitOf(202);
  window.Computed(201, 1e6, /*applied=*/true);
  EXPECT_EQ(window.LimitOf(202), limit);
  EXPECT_NE(window.LimitOf(203), limit);
}

TEST(NormWindowTest, NormsThatHardlyDifferMakeNoSpikes) {
  NormWindow window({});
  for (int64_t step = 1; step <= 40; ++step) {
    window.Computed(step, 2, /*applied=*/true);
  }
  EXPECT_NEAR(window.LimitOf(41).value(), 2 * std::exp(0.06), 1e-12);
}

TEST(NormWindowTest, StepsThatWereNotAppliedDoNotCount) {
  NormWindow window = WindowUpTo(200);
  const std::optional<double> limit = window.LimitOf(202);
  window.Computed(201, 1e9, /*applied=*/false);
  window.Computed(202, NAN, /*applied=*/false);
  window.Computed(203, 0, /*applied=*/true);
  EXPECT_NEAR(window.LimitOf(206).value(), limit.value(), 1e-9);
  EXPECT_EQ(window.norms().back().step, 200);
}

TEST(NormWindowTest, OnlyTheNewestCount) {
  NormWindow window({});
  window.Computed(1, 1e6, /*applied=*/true);
  for (int64_t step = 2; step <= 129; ++step) {
    window.Computed(step, 1, /*applied=*/true);
  }
  EXPECT_GT(window.LimitOf(130).value(), 2) << "of the steps up to 128";
  window.Computed(130, 1, /*applied=*/true);
  EXPECT_LT(window.LimitOf(131).value(), 2) << "of those from 2 to 129";
}

TEST(NormWindowTest, ResumedWindowHasTheSameLimits) {
  NormWindow window = WindowUpTo(150);
  NormWindow again(window.norms());
  for (int64_t step = 151; step <= 400; ++step) {
    EXPECT_EQ(again.LimitOf(step), window.LimitOf(step));
    window.Computed(step, 1 + step % 7, /*applied=*/step % 5 != 0);
    again.Computed(step, 1 + step % 7, /*applied=*/step % 5 != 0);
  }
}

TEST(NormWindowTest, WarmUpAndFirstStepsAreApplied) {
  EXPECT_FALSE(NormWindow::MaySkip(128, /*warmup_steps=*/0));
  EXPECT_TRUE(NormWindow::MaySkip(129, /*warmup_steps=*/0));
  EXPECT_FALSE(NormWindow::MaySkip(300, /*warmup_steps=*/300));
  EXPECT_TRUE(NormWindow::MaySkip(301, /*warmup_steps=*/300));
}

}  // namespace

}  // namespace tandem::trainer
