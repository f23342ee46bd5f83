// SPDX-License-Identifier: Apache-2.0
#include "fsdp/double_double.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <iostream>
#include <limits>
#include <random>
#include <vector>

namespace tandem::fsdp {
namespace {

TEST(DoubleDoubleTest, ValueIsIndependentOfTheSplit) {
  const uint64_t seed = std::random_device{}();
  std::cout << "seed " << seed << "\n";
  std::mt19937_64 random(seed);
  std::lognormal_distribution<double> term(0, 12);
  for (int repeat = 0; repeat < 200; ++repeat) {
    std::vector<double> terms(1000);
    for (double& value : terms) {
      value = term(random);
    }
    DoubleDouble one;
    for (const double value : terms) {
      one.Add(value);
    }
    for (int split = 0; split < 10; ++split) {
      std::shuffle(terms.begin(), terms.end(), random);
      const size_t ranks = random() % 16 + 1;
      std::vector<DoubleDouble> parts(ranks);
      for (const double value : terms) {
        parts[random() % ranks].Add(value);
      }
      DoubleDouble total;
      for (const DoubleDouble& part : parts) {
        total.Add(part);
      }
      ASSERT_EQ(total.value(), one.value()) << "seed " << seed << " repeat " << repeat;
    }
  }
}

TEST(DoubleDoubleTest, KeepsWhatADoubleLoses) {
  DoubleDouble sum;
  sum.Add(1e16);
  for (int i = 0; i < 1000; ++i) {
    sum.Add(1.0 / 3);
  }
  sum.Add(-1e16);
  EXPECT_NEAR(sum.value(), 1000.0 / 3, 1e-10);
}

TEST(DoubleDoubleTest, InfinityStaysInfinityAndNanStaysNan) {
  const double infinity = std::numeric_limits<double>::infinity();
  DoubleDouble sum;
  sum.Add(1);
  sum.Add(infinity);
  sum.Add(2);
  EXPECT_EQ(sum.value(), infinity);
  sum.Add(std::numeric_limits<double>::quiet_NaN());
  EXPECT_TRUE(std::isnan(sum.value()));
}

}  // namespace
}  // namespace tandem::fsdp
