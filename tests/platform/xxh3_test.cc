// SPDX-License-Identifier: Apache-2.0
#include "platform/xxh3.h"

#include <gtest/gtest.h>

#include <string>

namespace tandem::platform {
namespace {

TEST(Xxh3Test, PartsHaveTheDigestOfTheWhole) {
  const std::string content = "What is read in parts has one digest.";
  for (size_t cut = 0; cut <= content.size(); ++cut) {
    Xxh3 parts;
    parts.Add(content.substr(0, cut));
    parts.Add(content.substr(cut));
    EXPECT_EQ(parts.Get(), Xxh3Of(content));
  }
  EXPECT_EQ(Xxh3().Get(), Xxh3Of(""));
}

}  // namespace
}  // namespace tandem::platform
