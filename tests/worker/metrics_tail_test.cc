// SPDX-License-Identifier: Apache-2.0
#include "worker/metrics_tail.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "tests/platform/temporary_folder.h"

namespace tandem::worker {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

class MetricsTailTest : public testing::Test {
 protected:
  MetricsTailTest() { Write(".owner", R"({"job":"a","name":"n","attempt":1,"host":"h"})"); }

  void Write(const std::string& name, const std::string& text) const { folder_.Write(name, text); }
  std::vector<int64_t> Steps(const std::string& job = "a", int64_t first_step = 0) const {
    std::vector<int64_t> steps;
    for (const v1::StepReport& report :
         ReadMetricsTail(platform::SystemFiles(), job,
                         {.directory = folder_.path(), .first_step = first_step, .last_step = 9})) {
      steps.push_back(report.step());
    }
    return steps;
  }

  const platform::TemporaryFolder folder_;
};

TEST_F(MetricsTailTest, ALineIsAReportWithItsScalars) {
  const std::optional<v1::StepReport> report = ReportOfLine(
      R"({"step":7,"loss":2.5,"grad_norm":null,"learning_rate":0.001,"tokens":512,"seconds":0.25,)"
      R"("nonfinite":3,"validation_loss":4.5})");
  ASSERT_TRUE(report.has_value());
  EXPECT_EQ(report->step(), 7);
  EXPECT_EQ(report->loss(), 2.5);
  EXPECT_TRUE(std::isnan(report->grad_norm()));
  EXPECT_EQ(report->learning_rate(), 0.001);
  EXPECT_EQ(report->tokens(), 512);
  EXPECT_EQ(report->seconds(), 0.25);
  EXPECT_EQ(report->nonfinite(), 3);
  ASSERT_EQ(report->scalars_size(), 1);
  EXPECT_EQ(report->scalars().at("validation_loss"), 4.5);
  const std::string long_name(129, 'x');
  EXPECT_EQ(ReportOfLine(R"({"step":7,")" + long_name + R"(":1})")->scalars_size(), 0)
      << "it would be refused";
  for (const std::string line : {"", "{", "[]", "{}", R"({"step":"7"})", R"({"step":7,"loss":"x"})"}) {
    EXPECT_FALSE(ReportOfLine(line).has_value()) << line;
  }
}

TEST_F(MetricsTailTest, ForeignStepsAreLeftOut) {
  EXPECT_THAT(Steps(), IsEmpty()) << "there is no file";
  Write("metrics.jsonl",
        "{\"step\":0}\n{\"step\":1}\nnoise\n{\"step\":9}\n{\"step\":10}\n{\"step\":-1}\n{\"step\":2}");
  EXPECT_THAT(Steps(), ElementsAre(0, 1, 9)) << "the last line has no end";
  EXPECT_THAT(Steps("a", 2), ElementsAre(9));
}

TEST_F(MetricsTailTest, ADirectoryOfAnotherJobIsNotRead) {
  Write("metrics.jsonl", "{\"step\":1}\n");
  EXPECT_THAT(Steps("b"), IsEmpty());
  EXPECT_THAT(Steps("a"), ElementsAre(1));
}

TEST_F(MetricsTailTest, OfALongFileTheEndIsRead) {
  std::string text;
  while (static_cast<int64_t>(text.size()) < kMostTailBytes) {
    text += "{\"step\":1,\"loss\":2.5,\"a scalar with a rather long name\":1.25}\n";
  }
  Write("metrics.jsonl", "{\"step\":3}\n" + text + "{\"step\":2}\n");
  const std::vector<int64_t> steps = Steps();
  EXPECT_EQ(steps.front(), 1);
  EXPECT_EQ(steps.back(), 2);
}

}  // namespace
}  // namespace tandem::worker
