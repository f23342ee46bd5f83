// SPDX-License-Identifier: Apache-2.0
#include "proto/protocol.h"

#include <gtest/gtest.h>

#include <set>

namespace tandem::proto {
namespace {

TEST(AttemptKeyTest, IsTheIdThatMessagesCarry) {
  const AttemptKey key{.job = "0123456789ab", .attempt = 2};
  EXPECT_EQ(IdOf(key).job_id(), "0123456789ab");
  EXPECT_EQ(IdOf(key).attempt(), 2);
  EXPECT_EQ(KeyOf(IdOf(key)), key);
}

TEST(AttemptKeyTest, AttemptsOfAJobAreNeighbours) {
  const std::set<AttemptKey> keys = {{"b", 1}, {"a", 10}, {"a", 9}};
  EXPECT_EQ(*keys.begin(), (AttemptKey{"a", 9}));
  EXPECT_EQ(*keys.rbegin(), (AttemptKey{"b", 1}));
}

}  // namespace
}  // namespace tandem::proto
