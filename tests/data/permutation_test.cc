// SPDX-License-Identifier: Apache-2.0
#include "data/permutation.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

namespace tandem::data {
namespace {

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

}  // namespace
}  // namespace tandem::data
