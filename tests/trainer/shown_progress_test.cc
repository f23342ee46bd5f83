// SPDX-License-Identifier: Apache-2.0
#include "trainer/shown_progress.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "checkpoint/work_together.h"
#include "nlohmann/json.hpp"

namespace tandem::trainer {
namespace {

using testing::ElementsAre;

class ShownProgressTest : public testing::Test {
 protected:
  // The percents of the lines that the log gets at these amounts of a `path`.
  std::vector<int> LoggedOf(ShownProgress& shown, const std::string& path, const std::vector<int64_t>& done,
                            int64_t total) {
    testing::internal::CaptureStderr();
    for (const int64_t amount : done) {
      shown({.path = path, .done = amount, .total = total});
    }
    const std::string logged = testing::internal::GetCapturedStderr();
    std::vector<int> percents;
    for (const absl::string_view line : absl::StrSplit(logged, '\n', absl::SkipEmpty())) {
      const nlohmann::json json = nlohmann::json::parse(line.begin(), line.end());
      EXPECT_EQ(json.at("msg"), "the ranks read");
      EXPECT_EQ(json.at("path"), path);
      EXPECT_EQ(json.at("bytes"), std::to_string(total));
      percents.push_back(std::stoi(json.at("percent").get<std::string>()));
    }
    return percents;
  }

  int moves_ = 0;
  ShownProgress shown_{/*logs=*/true, "the ranks read", "bytes", [this] { ++moves_; }};
};

TEST_F(ShownProgressTest, EveryTenthIsALine) {
  EXPECT_THAT(LoggedOf(shown_, "a", {0, 50, 100, 150, 199, 200, 990, 1000}, 1000),
              ElementsAre(10, 20, 90, 100));
  EXPECT_EQ(moves_, 8);
  EXPECT_THAT(LoggedOf(shown_, "b", {300}, 1000), ElementsAre(30));
  EXPECT_THAT(LoggedOf(shown_, "c", {300}, 1000), ElementsAre(30)) << "another path begins again";
}

TEST_F(ShownProgressTest, WhatIsDoneAtOnceIsNoLine) {
  EXPECT_THAT(LoggedOf(shown_, "a", {1000}, 1000), ElementsAre());
  EXPECT_THAT(LoggedOf(shown_, "empty", {0}, 0), ElementsAre());
  EXPECT_EQ(moves_, 2);
}

TEST_F(ShownProgressTest, SilentRankStillMoves) {
  ShownProgress silent(/*logs=*/false, "the ranks read", "bytes", [this] { ++moves_; });
  EXPECT_THAT(LoggedOf(silent, "a", {100, 500, 1000}, 1000), ElementsAre());
  EXPECT_EQ(moves_, 3);
}

}  // namespace
}  // namespace tandem::trainer
