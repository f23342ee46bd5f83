// SPDX-License-Identifier: Apache-2.0
#include "parallel/group_options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>

#include "parallel/from_spec.h"
#include "parallel/job_groups.h"

namespace tandem::parallel {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using Options = std::map<std::string, GroupOptions>;

Options Of(const v1::NcclGroups& spec, const GridSizes& sizes) {
  return GroupOptionsOf(spec, JobGroups(sizes).value());
}

TEST(GroupOptionsTest, AGroupWithoutAnEntryHasNone) {
  v1::NcclGroups spec;
  EXPECT_THAT(Of(spec, {.world = 4}), IsEmpty());
  spec.mutable_intra_dist_opt()->set_max_ctas(2);
  EXPECT_EQ(Of(spec, {.world = 4}), (Options{{"intra_dist_opt", {.max_ctas = 2}}}));
}

// The group that gathers is a clone of the one that reduces, in one replica or several.
TEST(GroupOptionsTest, CloneInheritsItsParentsOptions) {
  v1::NcclGroups spec;
  spec.mutable_dp_cp()->set_high_priority(true);
  spec.mutable_dp_cp()->set_max_ctas(16);
  spec.mutable_dp_cp()->set_net_name("ib");
  const GroupOptions parent{.high_priority = true, .max_ctas = 16, .net_name = "IB"};
  EXPECT_EQ(Of(spec, {.world = 4}), (Options{{"dp_cp", parent}, {"dp_cp_ag", parent}}));
  spec.mutable_dp_cp_ag()->set_high_priority(false);
  spec.mutable_dp_cp_ag()->set_min_ctas(4);
  spec.mutable_dp_cp_ag()->set_cga_cluster_size(0);
  EXPECT_EQ(
      Of(spec, {.world = 4}),
      (Options{{"dp_cp", parent},
               {"dp_cp_ag", {.cga_cluster_size = 0, .min_ctas = 4, .max_ctas = 16, .net_name = "IB"}}}));

  v1::NcclGroups inner;
  inner.mutable_intra_dp_cp()->set_max_ctas(8);
  EXPECT_EQ(Of(inner, {.world = 4, .replicas = 2}),
            (Options{{"intra_dp_cp", {.max_ctas = 8}}, {"dp_cp_ag", {.max_ctas = 8}}}));
}

TEST(GroupOptionsTest, EveryJobGroupHasAKey) {
  for (const GridSizes& sizes :
       {GridSizes{.world = 8}, GridSizes{.world = 8, .replicas = 2}, GridSizes{.world = 8, .expert = 2},
        GridSizes{.world = 8, .expert = 2, .replicas = 2}}) {
    const ProcessGroups groups = JobGroups(sizes).value();
    for (const GroupKind& kind : groups.kinds()) {
      EXPECT_EQ(v1::NcclGroups::descriptor()->FindFieldByName(kind.name) != nullptr, kind.name != "report")
          << kind.name;
    }
  }
}

TEST(GroupOptionsTest, StepGroupsFollowThePlacements) {
  EXPECT_THAT(StepGroups({.world = 4}, /*gathers=*/true, /*counts_over_data=*/false),
              ElementsAre("dp_cp", "dp_cp_ag", "intra_dist_opt"));
  EXPECT_THAT(StepGroups({.world = 4}, /*gathers=*/false, /*counts_over_data=*/false),
              ElementsAre("dp_cp", "intra_dist_opt"));
  EXPECT_THAT(StepGroups({.world = 4, .replicas = 2}, /*gathers=*/true, /*counts_over_data=*/false),
              ElementsAre("intra_dp_cp", "inter_dp_cp", "dp_cp_ag", "world"));
  EXPECT_THAT(StepGroups({.world = 4, .expert = 2}, /*gathers=*/true, /*counts_over_data=*/false),
              ElementsAre("dp_cp", "dp_cp_ag", "ep", "expt_dp", "expt_dp_ag", "intra_dist_opt"));
  EXPECT_THAT(StepGroups({.world = 4, .tensor = 3}, /*gathers=*/true, /*counts_over_data=*/false), IsEmpty());
}

TEST(CtasTest, JobSetsCtaBoundElseItsPurposeDoes) {
  EXPECT_EQ(BoundOfCtas({.max_ctas = 7}, "norm"), 7);
  EXPECT_EQ(BoundOfCtas({.min_ctas = 2}, "norm"), kMostCtas);
  EXPECT_EQ(BoundOfCtas({.high_priority = true}, "norm"), 1);
  EXPECT_EQ(BoundOfCtas({}, "sizes"), 1);
  EXPECT_EQ(BoundOfCtas({}, "values"), 2);
  EXPECT_EQ(BoundOfCtas({}, "reduce"), 4);
  EXPECT_EQ(BoundOfCtas({}, "dispatch"), 16);
}

TEST(GroupOptionsTest, TextSaysWhatIsSet) {
  EXPECT_EQ(ToText(GroupOptions()), "");
  EXPECT_EQ(
      ToText({.high_priority = true, .cga_cluster_size = 2, .min_ctas = 4, .max_ctas = 16, .net_name = "IB"}),
      "high priority, 4 to 16 CTAs, clusters of 2, over IB");
  EXPECT_EQ(ToText({.max_ctas = 8}), "at most 8 CTAs");
  EXPECT_EQ(ToText({.min_ctas = 8}), "at least 8 CTAs");
}

}  // namespace
}  // namespace tandem::parallel
