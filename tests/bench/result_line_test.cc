// SPDX-License-Identifier: Apache-2.0
#include "bench/result_line.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "ops/cpu/best_instruction_set.h"
#include "platform/build_info.h"

namespace tandem::bench {
namespace {

using testing::ElementsAre;
using testing::EndsWith;

TEST(ResultLineTest, AResultIsFollowedByItsOrigin) {
  const absl::Time before = absl::Now() - absl::Seconds(1);  // what is printed has no fractions
  const std::string text = ResultLine({{"operation", "copy"}, {"ms", 0.25}}, "a GPU");
  const absl::Time after = absl::Now();
  EXPECT_THAT(text, testing::Not(testing::HasSubstr("\n")));
  const auto line = nlohmann::ordered_json::parse(text);
  std::vector<std::string> keys;
  for (const auto& [key, value] : line.items()) {
    keys.push_back(key);
  }
  EXPECT_THAT(keys, ElementsAre("operation", "ms", "machine", "commit", "date"));
  EXPECT_EQ(line["machine"], "a GPU");
  EXPECT_THAT(platform::BuildVersion(), EndsWith("+" + line["commit"].get<std::string>()));
  absl::Time date;
  std::string error;
  ASSERT_TRUE(absl::ParseTime("%Y-%m-%dT%H:%M:%SZ", line["date"].get<std::string>(), &date, &error)) << text;
  EXPECT_GE(date, before);
  EXPECT_LE(date, after);
}

TEST(ResultLineTest, ProcessorsAreNamedWithOurKernelsInstructionSet) {
  EXPECT_THAT(ProcessorName(),
              EndsWith(std::string(", ") + ops::cpu::ToText(ops::cpu::BestInstructionSet())));
}

}  // namespace
}  // namespace tandem::bench
