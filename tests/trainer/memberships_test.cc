// SPDX-License-Identifier: Apache-2.0
#include "trainer/memberships.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "trainer/failure.h"

namespace tandem::trainer {
namespace {

// Four ranks in two replicas: both axes, and clones.
std::vector<parallel::Group> Planned() {
  return {{.name = "intra", .ranks = {0, 1}},
          {.name = "intra", .ranks = {2, 3}},
          {.name = "gather", .ranks = {0, 1}, .clone_of = 0},
          {.name = "gather", .ranks = {2, 3}, .clone_of = 1},
          {.name = "inter", .ranks = {0, 2}},
          {.name = "inter", .ranks = {1, 3}}};
}

// What the difference is said to be; empty: there is none.
std::string Refusal(const std::vector<parallel::Group>& listed) {
  try {
    RequireSameGroups(Planned(), listed);
  } catch (const BuildMismatch& error) {
    const std::string text = error.what();
    return text.substr(0, text.find(';'));
  }
  return "";
}

TEST(MembershipsTest, RankHasItsPlaceInEachGroup) {
  const std::vector<comm::Membership> memberships =
      MembershipsOf(Planned(), 2, {{"gather", {.max_ctas = 16}}});
  ASSERT_EQ(memberships.size(), 3u);
  EXPECT_EQ(memberships[0].group, "intra");
  EXPECT_EQ(memberships[0].prefix, "group/1/");
  EXPECT_EQ(memberships[0].rank, 0);
  EXPECT_EQ(memberships[0].size, 2);
  EXPECT_EQ(memberships[0].ranks, (std::vector{2, 3}));
  EXPECT_EQ(memberships[0].clone_of, "");
  EXPECT_EQ(memberships[1].prefix, "group/3/");
  EXPECT_EQ(memberships[1].clone_of, "intra");
  EXPECT_EQ(memberships[1].options, (parallel::GroupOptions{.max_ctas = 16}));
  EXPECT_EQ(memberships[2].options, parallel::GroupOptions());
  EXPECT_EQ(memberships[2].group, "inter");
  EXPECT_EQ(memberships[2].prefix, "group/4/");
  EXPECT_EQ(memberships[2].rank, 1);
}

TEST(MembershipsTest, DifferingGroupsAreRefused) {
  const std::vector<parallel::Group> planned = Planned();
  EXPECT_EQ(Refusal(planned), "");

  std::vector<parallel::Group> reversed = planned;
  std::swap(reversed[4].ranks[0], reversed[4].ranks[1]);
  EXPECT_EQ(Refusal(reversed),
            "process group 4 is inter {2 0} in the controller's list and inter {0 2} in this trainer's plan");

  std::vector<parallel::Group> swapped = planned;
  std::swap(swapped[1].name, swapped[4].name);
  EXPECT_EQ(Refusal(swapped),
            "process group 1 is inter {2 3} in the controller's list and intra {2 3} in this trainer's plan");

  std::vector<parallel::Group> without_clone = planned;
  without_clone[3].clone_of = -1;
  EXPECT_EQ(
      Refusal(without_clone),
      "process group 3 is gather {2 3} in the controller's list and gather {2 3}, a clone of group 1 in "
      "this trainer's plan");

  std::vector<parallel::Group> fewer = planned;
  fewer.pop_back();
  EXPECT_EQ(Refusal(fewer),
            "process group 5 is none in the controller's list and inter {1 3} in this trainer's plan");
}

}  // namespace
}  // namespace tandem::trainer
