// SPDX-License-Identifier: Apache-2.0
#include "data/draws.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <set>
#include <utility>
#include <vector>

namespace tandem::data {
namespace {

using ::testing::ElementsAre;

std::vector<int64_t> Places(int64_t size, uint64_t key) {
  const Permutation permutation(size, key);
  std::vector<int64_t> places;
  for (int64_t i = 0; i < size; ++i) {
    places.push_back(permutation(i));
  }
  return places;
}

TEST(PermutationTest, EveryPlaceIsTakenOnceForEverySize) {
  for (int64_t size = 1; size <= 300; ++size) {
    std::vector<int64_t> places = Places(size, 7);
    std::sort(places.begin(), places.end());
    for (int64_t i = 0; i < size; ++i) {
      ASSERT_EQ(places[i], i) << size;
    }
  }
}

TEST(PermutationTest, KeysGiveDifferentOrders) {
  EXPECT_EQ(Places(1000, 1), Places(1000, 1));
  EXPECT_NE(Places(1000, 1), Places(1000, 2));
}

// Expected is one; 5.2 is about the seventh deviation of a Poisson count's mean over 10000 places.
TEST(PermutationTest, NeighboursAreScattered) {
  const std::vector<int64_t> places = Places(10000, 3);
  int64_t neighbours = 0;
  double distance = 0;
  for (size_t i = 1; i < places.size(); ++i) {
    neighbours += std::abs(places[i] - places[i - 1]) == 1 ? 1 : 0;
    distance += static_cast<double>(std::abs(places[i] - places[i - 1]));
  }
  EXPECT_LT(neighbours, 15);                       // 2 are expected
  EXPECT_NEAR(distance / 9999, 10000 / 3.0, 100);  // a third of the range is expected
}

TEST(PermutationTest, OrderNeverChanges) {
  // Whoever changes it changes the data of every job that is resumed.
  EXPECT_EQ(Places(10, 42), (std::vector<int64_t>{4, 6, 1, 3, 0, 9, 5, 8, 7, 2}));
}

TEST(PermutationTest, LargeSizesWork) {
  const Permutation permutation(int64_t{1} << 62, 5);
  EXPECT_NE(permutation(0), permutation(1));
  EXPECT_LT(permutation((int64_t{1} << 62) - 1), int64_t{1} << 62);
}

// "name" is empty: the key of a job that names its only text alone.
TEST(DrawsTest, ASourceWithoutANameKeepsItsOrder) {
  const Draws draws({{.windows = 10}}, /*seed=*/5, /*shuffles=*/true);
  for (int64_t n = 0; n < 30; ++n) {
    const Draw expected{.source = 0, .window = Permutation(10, MixKeys(5, n / 10))(n % 10)};
    EXPECT_THAT(draws.At(n, 1), ElementsAre(expected));
  }
}

std::vector<Draws::Source> Three() {
  return {{.name = "a", .windows = 7, .weight = 5},
          {.name = "b", .windows = 3, .weight = 3},
          {.name = "c", .windows = 11, .weight = 2}};
}

TEST(DrawsTest, EpochHasEveryWindowOnce) {
  const Draws draws(Three(), 1, true);
  std::vector<std::vector<int64_t>> of_source(3);
  for (const auto& [source, window] : draws.At(0, 1000)) {
    of_source[source].push_back(window);
  }
  EXPECT_EQ(of_source[0].size(), 500u);
  for (size_t i = 0; i < 3; ++i) {
    const size_t windows = draws.sources()[i].windows;
    std::set<std::vector<int64_t>> orders;
    for (size_t epoch = 0; (epoch + 1) * windows <= of_source[i].size(); ++epoch) {
      const auto begin = of_source[i].begin() + epoch * windows;
      EXPECT_EQ(std::set<int64_t>(begin, begin + windows).size(), windows) << i << " " << epoch;
      orders.insert({begin, begin + windows});
    }
    EXPECT_GT(orders.size(), 3u) << i;
  }
}

TEST(DrawsTest, SampleDoesNotDependOnTheRequest) {
  const Draws all(Three(), 1, true);
  const std::vector<Draw> expected = all.At(0, 200);
  for (const int64_t count : {1, 4, 7}) {
    const Draws draws(Three(), 1, true);
    for (int64_t begin = 200 - count; begin >= 0; begin -= count) {
      EXPECT_EQ(draws.At(begin, count),
                std::vector<Draw>(expected.begin() + begin, expected.begin() + begin + count));
    }
  }
}

TEST(DrawsTest, ItGoesOnWhereEachSourceWas) {
  Draws whole(Three(), 1, true);
  const std::vector<Draw> expected = whole.At(0, 120);
  Draws rest(Three(), 1, true);
  rest.Begin(whole.Taken(70));
  std::vector<std::vector<int64_t>> windows(3);
  std::vector<std::vector<int64_t>> now(3);
  for (size_t n = 70; n < 120; ++n) {
    windows[expected[n].source].push_back(expected[n].window);
  }
  for (const auto& [source, window] : rest.At(0, 50)) {
    now[source].push_back(window);
  }
  EXPECT_EQ(now, windows);  // 70 is a multiple of the weights' sum: of each as many
  EXPECT_EQ(rest.Taken(50), whole.Taken(120));
}

TEST(DrawsTest, WithoutShufflingWindowsComeInOrder) {
  Draws draws({{.name = "a", .windows = 3}}, 1, /*shuffles=*/false);
  draws.Begin({4});
  EXPECT_THAT(draws.At(0, 4), ElementsAre(Draw{0, 1}, Draw{0, 2}, Draw{0, 0}, Draw{0, 1}));
}

}  // namespace
}  // namespace tandem::data
