// SPDX-License-Identifier: Apache-2.0
#include "parallel/grid_sizes.h"

#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "parallel/process_groups.h"

namespace tandem::parallel {
namespace {

// Every violation, a line each.
std::string Violations(const GridSizes& sizes) {
  std::string text;
  for (const GridViolation& violation : CheckGrid(sizes)) {
    absl::StrAppend(&text, ToText(violation), "\n");
  }
  const std::string first = text.substr(0, text.find('\n'));
  EXPECT_EQ(ProcessGroups::Make(sizes).status().message(), first);
  return text;
}

TEST(GridSizesTest, SizesThatFitHaveNoViolation) {
  EXPECT_EQ(Violations({.world = 64,
                        .tensor = 2,
                        .context = 4,
                        .pipeline = 2,
                        .expert = 4,
                        .expert_tensor = 1,
                        .replicas = 2,
                        .order = "TP-Cp-ep-dp-pp",
                        .rank_offset = 8,
                        .virtual_pipeline = 3,
                        .context_levels = {2, 2},
                        .separate_all_gather = true}),
            "");
}

TEST(GridSizesTest, TheWorldIsAMultipleOfBothModels) {
  EXPECT_EQ(
      Violations({.world = 8, .tensor = 3, .expert_tensor = 1}),
      "world: 8 is not allowed; allowed: a multiple of 3 (tensor 3 × context 1 × pipeline 1); change the "
      "number of ranks, or one of the others\n");
  EXPECT_EQ(Violations({.world = 8, .expert = 3}),
            "world: 8 is not allowed; allowed: a multiple of 3 (expert_tensor 1 × expert 3 × pipeline 1); "
            "change the number of ranks, or one of the others\n");
}

TEST(GridSizesTest, ReplicasDivideBothGridsDataRanks) {
  EXPECT_EQ(Violations({.world = 8, .replicas = 3}),
            "replicas: 3 is not allowed; allowed: a divisor of the 8 data-parallel ranks (data × context); "
            "they are split into that many equal groups\n");
  EXPECT_EQ(Violations({.world = 8, .expert = 8, .replicas = 2}),
            "replicas: 2 is not allowed; allowed: a divisor of the 1 data-parallel ranks of an expert; they "
            "are split into that many equal groups\n");
}

TEST(GridSizesTest, SizesAndTheFirstRankAreInRange) {
  EXPECT_EQ(Violations({.world = 0, .context = 1 << 21, .virtual_pipeline = 0}),
            "world: 0 is not allowed; allowed: 1 to 1048576; use a larger number\n"
            "context: 2097152 is not allowed; allowed: 1 to 1048576; use a smaller number\n"
            "virtual_pipeline: 0 is not allowed; allowed: 1 to 1048576; use a larger number\n");
  EXPECT_EQ(Violations({.rank_offset = -1}),
            "rank_offset: -1 is not allowed; allowed: 0 to 2146435071; it is the first rank\n");
}

TEST(GridSizesTest, TheOrderHasEveryAxisThatIsLong) {
  const std::string allowed =
      " is not allowed; allowed: tp, cp, ep, dp and pp, each at most once, joined by -; ";
  EXPECT_EQ(Violations({.world = 8, .order = "tp-xp-dp"}),
            "order: tp-xp-dp" + allowed + "xp is none of them\n");
  EXPECT_EQ(Violations({.world = 8, .order = "tp--dp"}),
            "order: tp--dp" + allowed + "an empty name is none of them\n");
  EXPECT_EQ(Violations({.world = 8, .order = ""}), "order: " + allowed + "an empty name is none of them\n");
  EXPECT_EQ(Violations({.world = 8, .order = "tp-dp-"}),
            "order: tp-dp-" + allowed + "an empty name is none of them\n");
  EXPECT_EQ(Violations({.world = 8, .order = "tp-tp"}), "order: tp-tp" + allowed + "tp is listed twice\n");
  EXPECT_EQ(Violations({.world = 8, .tensor = 2, .expert = 2, .order = "cp-pp"}),
            "order: cp-pp" + allowed + "tp is missing, and there are 2 ranks along it\n" + "order: cp-pp" +
                allowed + "ep is missing, and there are 2 ranks along it\n" + "order: cp-pp" + allowed +
                "dp is missing, and there are 4 ranks along it\n");
}

TEST(GridSizesTest, ExpertsHaveThePipelinesOfTheDenseLayers) {
  const GridSizes sizes = {
      .world = 8, .tensor = 2, .pipeline = 2, .expert = 2, .expert_tensor = 1, .order = "tp-cp-pp-ep-dp"};
  EXPECT_EQ(
      Violations(sizes),
      "order: tp-cp-pp-ep-dp is not allowed; allowed: an order in which experts have the pipelines of "
      "the dense layers; with tensor 2, context 1, expert 2, expert_tensor 1, pipeline 2 put pp last\n");
  GridSizes last = sizes;
  last.order = "tp-cp-ep-dp-pp";
  EXPECT_EQ(Violations(last), "");
}

TEST(GridSizesTest, OnlyAPipelineIsInterleaved) {
  EXPECT_EQ(
      Violations({.world = 8, .virtual_pipeline = 2}),
      "virtual_pipeline: 2 is not allowed; allowed: 1 where pipeline is 1; a rank interleaves pieces of "
      "a pipeline: use pipeline > 1, or 1\n");
}

TEST(GridSizesTest, LevelsMultiplyToContext) {
  EXPECT_EQ(Violations({.world = 8, .context = 8, .context_levels = {2, 2}}),
            "context_levels: 2 × 2 is not allowed; allowed: sizes that multiply to context 8; each level "
            "splits the groups of the next\n");
  EXPECT_EQ(Violations({.world = 8, .context = 8, .context_levels = {8, 0}}),
            "context_levels: 0 is not allowed; allowed: 1 to 1048576; every level has a size\n");
}

}  // namespace
}  // namespace tandem::parallel
