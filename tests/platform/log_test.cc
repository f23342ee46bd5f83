// SPDX-License-Identifier: Apache-2.0
#include "platform/log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "nlohmann/json.hpp"

namespace tandem::platform {
namespace {

using testing::HasSubstr;

TEST(LogTest, PipesGetJsonLines) {
  testing::internal::CaptureStderr();
  SetLogComponent("worker");
  Log(LogLevel::kWarning, "two\nlines \"quoted\"", {{"rank", "3"}, {"path", std::string("a\xff") + "b"}});
  Log(LogLevel::kInfo, "second");
  const std::string text = testing::internal::GetCapturedStderr();
  const size_t first_end = text.find('\n');
  const nlohmann::json first = nlohmann::json::parse(text.substr(0, first_end));
  EXPECT_EQ(first["level"], "warning");
  EXPECT_EQ(first["msg"], "two\nlines \"quoted\"");
  EXPECT_EQ(first["component"], "worker");
  EXPECT_EQ(first["rank"], "3");
  EXPECT_THAT(first["ts"].get<std::string>(), testing::MatchesRegex("....-..-..T..:..:......Z"));
  const nlohmann::json second = nlohmann::json::parse(text.substr(first_end + 1));
  EXPECT_EQ(second["msg"], "second");
}

}  // namespace
}  // namespace tandem::platform
