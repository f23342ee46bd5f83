// SPDX-License-Identifier: Apache-2.0
#include "platform/random.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

#include "tests/platform/seeded_random.h"

namespace tandem::platform {
namespace {

TEST(RandomTest, IdsAreLowerCaseHexadecimal) {
  SeededRandom random(7);
  for (const int digits : {1, 12, 16, 17, 64}) {
    const std::string id = random.HexId(digits);
    EXPECT_EQ(static_cast<int>(id.size()), digits);
    EXPECT_EQ(id.find_first_not_of("0123456789abcdef"), std::string::npos) << id;
  }
}

TEST(RandomTest, KernelNeverGivesTheSameIdTwice) {
  std::set<std::string> ids;
  for (int i = 0; i < 1000; ++i) {
    EXPECT_TRUE(ids.insert(SystemRandom().HexId(12)).second);
  }
}

}  // namespace
}  // namespace tandem::platform
