// SPDX-License-Identifier: Apache-2.0
#include "data/blend.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <iostream>
#include <numeric>
#include <random>
#include <vector>

namespace tandem::data {
namespace {

using ::testing::ElementsAre;

int64_t SumOf(const std::vector<int64_t>& numbers) {
  return std::accumulate(numbers.begin(), numbers.end(), int64_t{0});
}

TEST(ScaledWeightsTest, TheyAreMillionthsOfTheirSum) {
  EXPECT_THAT(ScaledWeights({0.7, 0.2, 0.1}), ElementsAre(700000, 200000, 100000));
  EXPECT_THAT(ScaledWeights({1, 1, 1}), ElementsAre(333333, 333333, 333333));
  EXPECT_THAT(ScaledWeights({1e6, 1e-6}), ElementsAre(1000000, 1));
  EXPECT_THAT(ScaledWeights({3}), ElementsAre(1000000));
  EXPECT_THAT(ScaledCounts({3, 1}), ElementsAre(750000, 250000));
  EXPECT_THAT(ScaledCounts({int64_t{1} << 50, 1}), ElementsAre(1000000, 1));
}

// Against the rule as its text has it, in products that fit 64 bits here.
void ExpectTheRule(const std::vector<int64_t>& weights, int64_t samples) {
  const int64_t sum = SumOf(weights);
  std::vector<int64_t> expected(weights.size());
  Blend blend(weights);
  for (int64_t t = 1; t <= samples; ++t) {
    size_t best = weights.size();
    for (size_t i = 0; i < weights.size(); ++i) {
      if (expected[i] * sum >= weights[i] * t) {
        continue;
      }
      if (best == weights.size() || (expected[i] + 1) * weights[best] < (expected[best] + 1) * weights[i]) {
        best = i;
      }
    }
    ASSERT_LT(best, weights.size());
    ++expected[best];
    ASSERT_EQ(blend.Next(), best) << t;
    for (size_t i = 0; i < weights.size(); ++i) {
      ASSERT_LT(std::abs(blend.counts()[i] * sum - t * weights[i]), sum)
          << "sample " << t << ", source " << i;
    }
  }
  EXPECT_EQ(blend.counts(), expected);
  EXPECT_EQ(SumOf(blend.counts()), samples);
}

// One of which the largest deficit alone falls behind by more than a sample.
TEST(BlendTest, AHardMixtureStaysWithinASample) {
  const std::vector<int64_t> weights = {10, 100, 3, 100, 100, 1, 1, 100, 1, 1, 1, 5};
  ExpectTheRule(weights, 3 * SumOf(weights));
}

TEST(BlendTest, RandomMixturesStayWithinASample) {
  const auto seed = std::random_device()();
  std::cout << "seed " << seed << "\n";
  std::mt19937 random(seed);
  for (int mixture = 0; mixture < 4000; ++mixture) {
    std::vector<int64_t> weights(1 + random() % 12);
    for (int64_t& weight : weights) {
      weight = 1 + random() % (random() % 3 == 0 ? 1000 : 7);
    }
    ASSERT_NO_FATAL_FAILURE(ExpectTheRule(weights, 400));
  }
}

TEST(BlendTest, SeekingIsCountingUpToThere) {
  const auto seed = std::random_device()();
  std::cout << "seed " << seed << "\n";
  std::mt19937 random(seed);
  for (int mixture = 0; mixture < 200; ++mixture) {
    std::vector<int64_t> weights(1 + random() % 6);
    for (int64_t& weight : weights) {
      weight = 1 + random() % 20;
    }
    std::vector<std::vector<int64_t>> counts;
    std::vector<size_t> next;
    Blend counted(weights);
    for (int t = 0; t < 600; ++t) {
      counts.push_back(counted.counts());
      next.push_back(counted.Next());
    }
    Blend blend(weights);
    for (int jump = 0; jump < 20; ++jump) {
      const int64_t to = random() % 600;
      blend.Seek(to);
      ASSERT_EQ(blend.samples(), to);
      ASSERT_EQ(blend.counts(), counts[to]);
      ASSERT_EQ(blend.Next(), next[to]);
    }
  }
}

TEST(BlendTest, ItGoesFarWithoutATable) {
  const std::vector<int64_t> weights = ScaledWeights({0.61, 0.3, 0.09});
  Blend blend(weights);
  const int64_t far = int64_t{1} << 55;
  blend.Seek(far);
  EXPECT_EQ(SumOf(blend.counts()), far);
  for (int i = 0; i < 3; ++i) {
    EXPECT_LT(std::abs(static_cast<double>(blend.counts()[i]) -
                       static_cast<double>(far) * static_cast<double>(weights[i]) / 1e6),
              16.0);  // doubles there are multiples of four
  }
}

}  // namespace
}  // namespace tandem::data
