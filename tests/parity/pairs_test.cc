// SPDX-License-Identifier: Apache-2.0
#include "tests/parity/pairs.h"

#include <gtest/gtest.h>

#include <set>

namespace tandem::parity {
namespace {

TEST(PairsTest, EveryPairIsChosenInFarFewerCases) {
  const std::vector<int> sizes = {18, 2, 2, 2, 3};
  for (const uint64_t seed : {1, 2, 3}) {
    const std::vector<Choice> chosen = ChoicesThatCoverAllPairs(sizes, seed);
    EXPECT_EQ(chosen, ChoicesThatCoverAllPairs(sizes, seed));
    for (size_t a = 0; a < sizes.size(); ++a) {
      for (size_t b = a + 1; b < sizes.size(); ++b) {
        std::set<std::pair<int, int>> seen;
        for (const Choice& choice : chosen) {
          seen.emplace(choice[a], choice[b]);
        }
        EXPECT_EQ(seen.size(), static_cast<size_t>(sizes[a] * sizes[b])) << a << " and " << b;
      }
    }
    EXPECT_LT(chosen.size(), AllChoices(sizes).size() / 4);
  }
}

TEST(PairsTest, AllChoicesAreTheWholeProduct) {
  const std::vector<Choice> all = AllChoices({2, 3, 4});
  EXPECT_EQ(all.size(), 24u);
  EXPECT_EQ(std::set<Choice>(all.begin(), all.end()).size(), 24u);
}

}  // namespace
}  // namespace tandem::parity
