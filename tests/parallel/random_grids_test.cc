// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <iostream>
#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_join.h"
#include "parallel/grid_sizes.h"
#include "tests/parallel/coordinate_reference.h"
#include "tests/parallel/lists_by_name.h"

namespace tandem::parallel {
namespace {

using test::CoordinateReference;
using test::Key;
using test::Names;

class RandomGridsTest : public testing::Test {
 protected:
  RandomGridsTest() { std::cout << "seed " << seed_ << std::endl; }

  // Sizes that often fit, an order that has most axes, in any case, and an offset.
  GridSizes Sizes(Names& order) {
    const auto pick = [&](std::initializer_list<int> from) {
      return *(from.begin() + random_() % from.size());
    };
    order = {"tp", "cp", "ep", "dp", "pp"};
    std::shuffle(order.begin(), order.end(), random_);
    if (random_() % 4 == 0) {
      order.pop_back();
    }
    if (random_() % 2 == 0) {  // where pipelines most often agree
      std::stable_partition(order.begin(), order.end(), [](const std::string& name) { return name != "pp"; });
    }
    GridSizes sizes = {.tensor = pick({1, 1, 2, 3, 4}),
                       .context = pick({1, 1, 2, 4}),
                       .pipeline = pick({1, 1, 2, 3}),
                       .expert = pick({1, 2, 3, 4}),
                       .expert_tensor = pick({0, 1, 1, 2}),
                       .replicas = pick({1, 1, 2, 3}),
                       .order = absl::StrJoin(order, "-"),
                       .rank_offset = pick({0, 8, 37}),
                       .separate_all_gather = random_() % 2 == 0};
    if (random_() % 8 == 0) {
      sizes.order = absl::AsciiStrToUpper(sizes.order);
    }
    sizes.virtual_pipeline = sizes.pipeline > 1 ? pick({1, 2}) : 1;
    sizes.world = sizes.tensor * sizes.context * sizes.pipeline * pick({1, 2, 3, 4, 6, 12});
    return sizes;
  }

  const uint32_t seed_ = std::random_device()();
  std::mt19937 random_{seed_};
};

TEST_F(RandomGridsTest, GroupsAreThoseOfTheCoordinates) {
  int built = 0;
  int refused = 0;
  for (int round = 0; round < 6000; ++round) {
    Names order;
    const GridSizes sizes = Sizes(order);
    CoordinateReference reference(sizes, order);
    const std::vector<GridViolation> violations = CheckGrid(sizes);
    ASSERT_EQ(violations.empty(), reference.fits())
        << "round " << round << (violations.empty() ? "" : ": " + ToText(violations[0]));
    ++(reference.fits() ? built : refused);
    if (reference.fits()) {
      ASSERT_EQ(ListsByName(sizes), reference.All()) << "round " << round << ", order " << sizes.order;
    }
  }
  std::cout << built << " grids built, " << refused << " refused" << std::endl;
  EXPECT_GT(built, 1000);
  EXPECT_GT(refused, 500);
}

// The levels of a context group, from the digits of the place in it.
TEST_F(RandomGridsTest, LevelsOfAContextGroupVaryOneDigit) {
  for (int round = 0; round < 500; ++round) {
    GridSizes sizes = {.tensor = 1 + static_cast<int>(random_() % 2)};
    for (int level = 1 + static_cast<int>(random_() % 3); level > 0; --level) {
      sizes.context_levels.push_back(1 + static_cast<int>(random_() % 4));
      sizes.context *= sizes.context_levels.back();
    }
    sizes.world = sizes.tensor * sizes.context * 2;
    auto lists = ListsByName(sizes);
    for (size_t level = 0; level < sizes.context_levels.size(); ++level) {
      std::map<Key, RankList> expected;  // by context group, then by the digits with this one left out
      for (size_t group = 0; group < lists["cp"].size(); ++group) {
        for (int place = 0; place < sizes.context; ++place) {
          int rest = place;
          int left_out = 0;
          int stride = 1;
          for (size_t digit = 0; digit < sizes.context_levels.size(); ++digit) {
            left_out += digit == level ? 0 : rest % sizes.context_levels[digit] * stride;
            stride *= sizes.context_levels[digit];
            rest /= sizes.context_levels[digit];
          }
          expected[{static_cast<int>(group), left_out}].push_back(lists["cp"][group][place]);
        }
      }
      Lists groups;
      for (const auto& [key, list] : expected) {
        groups.push_back(list);
      }
      ASSERT_EQ(lists["hcp[" + std::to_string(level) + "]"], groups) << "round " << round;
    }
  }
}

}  // namespace
}  // namespace tandem::parallel
