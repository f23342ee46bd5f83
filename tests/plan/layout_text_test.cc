// SPDX-License-Identifier: Apache-2.0
#include "plan/layout_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fsdp/unit_mesh.h"
#include "plan/quantity_text.h"
#include "tests/plan/test_job.h"

namespace tandem::plan {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

std::string TextOf(const std::string& parallelism) { return LayoutText(MakeJobPlan(TestJob(parallelism))); }

TEST(LayoutTextTest, NamesTheAxesTheirGroupsAndWhatARankHasOnThem) {
  EXPECT_THAT(
      TextOf("{ranks: 2}"),
      HasSubstr("Placement of dense units: zero3\n"
                "  each rank has          of parameters a shard, of gradients a shard, of the optimizer's "
                "state a shard, over dp_cp of 2 ranks\n"
                "  gathers in             dp_cp_ag\n"
                "Process groups\n"
                "  dp_cp                  1 group of 2 ranks\n"
                "  dp_cp_ag               1 group of 2 ranks, clones of dp_cp\n"));
  const std::string replicas = TextOf("{ranks: 6, replicas: 2, fsdp: {strategy: hsdp}}");
  EXPECT_THAT(replicas, HasSubstr("over intra_dp_cp of 3 ranks\n"));
  EXPECT_THAT(replicas,
              HasSubstr("of gradients a partial sum, of the optimizer's state all, over inter_dp_cp of "
                        "2 ranks\n"));
  EXPECT_THAT(replicas, HasSubstr("  dp_cp_ag               2 groups of 3 ranks, clones of intra_dp_cp\n"));
}

// What a strategy keeps is read from the buffers of the program, and from no table of strategies.
TEST(LayoutTextTest, EachBufferSaysWhichPartOfTheUnitItHolds) {
  const auto part = [](const std::string& text, const std::string& buffer) {
    const size_t row = text.find("    " + buffer + " ", text.find("  layers.0: "));
    const size_t end = text.find(" of the unit", row);
    return text.substr(text.rfind("  ", end) + 2, end - text.rfind("  ", end) - 2);
  };
  const struct {
    const char* strategy;
    const char* weights;
    const char* gradients;
  } expected[] = {{"replicate", "all", "all"}, {"zero1", "1/6", "1/6"}, {"zero3", "1/6", "1/6"}};
  for (const auto& [strategy, weights, gradients] : expected) {
    const std::string text = TextOf(std::string("{ranks: 6, fsdp: {strategy: ") + strategy + "}}");
    EXPECT_EQ(part(text, "weights"), weights) << strategy << "\n" << text;
    EXPECT_EQ(part(text, "optimizer state"), weights) << strategy;
    EXPECT_EQ(part(text, "gradients"), gradients) << strategy;
  }
  const std::string hfsdp = TextOf("{ranks: 6, replicas: 2, fsdp: {strategy: hfsdp}}");
  EXPECT_EQ(part(hfsdp, "weights"), "1/6");
  const std::string hsdp = TextOf("{ranks: 6, replicas: 2, fsdp: {strategy: hsdp}}");
  EXPECT_EQ(part(hsdp, "weights"), "1/3");
}

// Contributions travel in the transport type, sums of them in the main type.
TEST(LayoutTextTest, StagingHasTheTypeOfWhatIsReduced) {
  const auto row = [](const std::string& parallelism, const std::string& buffer) {
    const std::string text = LayoutText(MakeJobPlan(TestJob(parallelism, "{compute: bf16}")));
    const size_t begin = text.find("    " + buffer + " ", text.find("  layers.0: "));
    return begin < text.find("  layers.1: ") ? text.substr(begin, text.find('\n', begin) - begin) : "";
  };
  const std::string of_run = "staging, once a step";
  for (const char* strategy : {"replicate", "zero1"}) {
    const std::string parallelism = std::string("{ranks: 6, fsdp: {strategy: ") + strategy + "}}";
    EXPECT_THAT(row(parallelism, of_run), HasSubstr("  all of the unit, 4 B an element")) << strategy;
    EXPECT_EQ(row(parallelism, "staging"), "") << strategy;
  }
  EXPECT_THAT(row("{ranks: 6}", "staging"), HasSubstr("  all of the unit, 2 B an element"));
  EXPECT_EQ(row("{ranks: 6}", of_run), "");
  const std::string hsdp = "{ranks: 6, replicas: 2, fsdp: {strategy: hsdp}}";
  EXPECT_THAT(row(hsdp, "staging"), HasSubstr("  all of the unit, 2 B an element"));
  EXPECT_THAT(row(hsdp, of_run), HasSubstr("  1/3 of the unit, 4 B an element"));
}

TEST(LayoutTextTest, EveryParameterAndThePaddingOfEveryUnitIsThere) {
  const JobPlan plan = MakeJobPlan(TestJob("{ranks: 3}"));
  const std::string text = LayoutText(plan);
  for (size_t unit = 0; unit < plan.layouts.size(); ++unit) {
    int64_t elements = 0;
    for (const fsdp::Parameter& parameter : plan.layouts[unit][0].parameters) {
      elements += parameter.range.size();
      EXPECT_THAT(text, HasSubstr("    " + parameter.name + " ["));
      EXPECT_THAT(text, HasSubstr("] @" + std::to_string(parameter.range.begin) + "+" +
                                  std::to_string(parameter.range.size()) + "\n"));
    }
    const int64_t padding = fsdp::PaddedElements(plan.layouts[unit][0], MeshOf(plan, unit, 0)) - elements;
    EXPECT_THAT(text, HasSubstr("  " + plan.units[unit].name + ": " + GroupedText(elements) +
                                " elements, padding " + GroupedText(padding) + " ("));
  }
  EXPECT_THAT(text, Not(HasSubstr("expert")));
}

}  // namespace
}  // namespace tandem::plan
