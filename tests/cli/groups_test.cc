// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_split.h"
#include "nlohmann/json.hpp"
#include "tests/cli/command_fixture.h"

namespace tandem::cli {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::Lt;
using ::testing::SizeIs;

class GroupsTest : public CommandTest {
 protected:
  // The command is `tandem groups`, with these words behind it.
  int Groups(std::vector<std::string> words) {
    words.insert(words.begin(), "groups");
    return Tandem(words);
  }

  nlohmann::json Json(std::vector<std::string> words) {
    words.insert(words.begin(), "groups");
    return CommandTest::Json(words);
  }
};

TEST_F(GroupsTest, OfAGridAreListsByName) {
  EXPECT_EQ(Groups({"--world-size", "4", "--tensor", "2", "--rank-offset", "8", "--separate-all-gather", "-o",
                    "json", "dp_cp_ag", "tp"}),
            kOk);
  EXPECT_EQ(console_.out,
            "{\"world_size\": 4, \"groups\": {\n"
            "  \"dp_cp\": [[8,10],[9,11]],\n"
            "  \"dp_cp_ag\": [[8,10],[9,11]],\n"
            "  \"tp\": [[8,9],[10,11]]\n"
            "}, \"clone_of\": {\"dp_cp_ag\": \"dp_cp\"}}\n");
}

TEST_F(GroupsTest, EveryOptionReachesTheGrid) {
  const nlohmann::json all = Json(absl::StrSplit(
      "--world-size 32 --tensor 2 --pipeline 2 --context 4 --expert 2 --expert-tensor 1 --replicas 2 "
      "--virtual-pipeline 2 --context-levels 2,2 --order cp-tp-ep-dp-pp --rank-offset 3 "
      "--separate-all-gather",
      ' '));
  EXPECT_EQ(all["world_size"], 32);
  const nlohmann::json& groups = all["groups"];
  EXPECT_EQ(groups["cp"][0], (std::vector<int>{3, 4, 5, 6}));
  EXPECT_EQ(groups["tp"][0], (std::vector<int>{3, 7}));
  EXPECT_EQ(groups["pp"][0], (std::vector<int>{3, 19}));
  EXPECT_EQ(groups["ep"][0], (std::vector<int>{3, 4}));
  EXPECT_EQ(groups["expt_tp"][0], (std::vector<int>{3}));
  EXPECT_EQ(groups["hcp[1]"][0], (std::vector<int>{3, 5}));
  EXPECT_EQ(groups["intra_dp_cp"].size(), 2 * groups["dp_cp"].size());
  EXPECT_EQ(groups["dp_cp_ag"], groups["intra_dp_cp"]);
  EXPECT_EQ(groups["expt_dp_ag"], groups["intra_expt_dp"]);
  EXPECT_EQ(all["clone_of"]["expt_dp_ag"], "intra_expt_dp");
}

TEST_F(GroupsTest, JobsGroupsHaveClones) {
  const nlohmann::json job = Json({"-f", GoodJobFile()});
  EXPECT_EQ(job["groups"]["dp_cp_ag"], job["groups"]["dp_cp"]);
  EXPECT_FALSE(Json({"--world-size", "2"})["groups"].contains("dp_cp_ag"));
}

TEST_F(GroupsTest, GroupsOfAnUnrunnableJobAreShown) {
  const std::string file =
      File("job.yaml", "parallelism: {ranks: 8, tensor: 2, expert: 2, expert_tensor: 1}\n");
  const nlohmann::json groups = Json({"-f", file})["groups"];
  EXPECT_EQ(groups["tp"][1], (std::vector<int>{2, 3}));
  EXPECT_EQ(groups["ep"][1], (std::vector<int>{2, 3}));
}

TEST_F(GroupsTest, ErrorsNameTheFlagOrTheField) {
  EXPECT_EQ(Groups({"--world-size", "9", "--tensor", "2", "--order", "tp-tp"}), kUsage);
  EXPECT_EQ(
      console_.err,
      "tandem: groups: --world-size: 9 is not allowed; allowed: a multiple of 2 (tensor 2 × context 1 × "
      "pipeline 1); change the number of ranks, or one of the others\n"
      "tandem: groups: --order: tp-tp is not allowed; allowed: tp, cp, ep, dp and pp, each at most once, "
      "joined by -; tp is listed twice\n");
  EXPECT_EQ(console_.out, "");
  EXPECT_EQ(Groups({"-f", File("job.yaml", "parallelism: {ranks: 4, replicas: 3}\n")}), kInvalidSpec);
  EXPECT_EQ(
      console_.err,
      "tandem: groups: parallelism.replicas: 3 is not allowed; allowed: a divisor of the 4 data-parallel "
      "ranks (data × context); they are split into that many equal groups\n");
  EXPECT_EQ(Groups({"-f", File("job.yaml", "paralelism: {ranks: 4}\n")}), kInvalidSpec);
  EXPECT_THAT(console_.err, HasSubstr("job.yaml:1:1: paralelism"));
}

TEST_F(GroupsTest, TakesAFileOrAGrid) {
  EXPECT_EQ(Groups({}), kUsage);
  EXPECT_THAT(console_.err, HasSubstr("give a job file (-f FILE), or --world-size"));
  for (const char* flag :
       {"--world-size", "--tensor", "--pipeline", "--context", "--expert", "--expert-tensor", "--replicas",
        "--virtual-pipeline", "--context-levels", "--rank-offset"}) {
    EXPECT_EQ(Groups({"-f", GoodJobFile(), flag, "2"}), kUsage) << flag;
    EXPECT_THAT(console_.err, HasSubstr("excludes")) << flag;
    EXPECT_EQ(Groups({flag, "-1"}), kUsage) << flag;
  }
  EXPECT_EQ(Groups({"-f", GoodJobFile(), "--separate-all-gather"}), kUsage);
  EXPECT_EQ(Groups({"--world-size", "2", "dp-cp"}), kUsage);
  EXPECT_THAT(console_.err,
              HasSubstr("the requested groups are invalid: there is no \"dp-cp\"; there are dp_cp"));
}

// At 512 ranks a kind has up to 512 groups, or one of 512 ranks.
TEST_F(GroupsTest, TheTableOf512RanksIsReadable) {
  const std::vector<std::string> grid = {
      "--world-size", "512", "--tensor",        "4", "--context",  "2", "--pipeline",           "4",
      "--expert",     "8",   "--expert-tensor", "1", "--replicas", "2", "--separate-all-gather"};
  EXPECT_EQ(Groups(grid), kOk) << console_.err;
  EXPECT_THAT(console_.out, HasSubstr("512 ranks, order tp-cp-ep-dp-pp\n"
                                      "dense    tensor 4 × context 2 × data 16 × pipeline 4\n"
                                      "experts  tensor 1 × expert 8 × data 16 × pipeline 4\n"));
  EXPECT_THAT(console_.out, HasSubstr("{0-124:4} {1-125:4} … {387-511:4}"));
  EXPECT_THAT(Lines(), Each(SizeIs(Lt(130))));
  EXPECT_LT(Lines().size(), 35);
  EXPECT_THAT(console_.out, HasSubstr("\nlink               768     2  {0 128} {1 129} … {511 383}"));

  console_.terminal = true;
  console_.size = {.columns = 80, .rows = 24};
  EXPECT_EQ(Groups(grid), kOk);
  EXPECT_THAT(console_.out, HasSubstr("dp_cp               16    32  {0-124:4} {1-125:4} … {387-511:4}  "));
}

TEST_F(GroupsTest, LinksAreListedByStages) {
  EXPECT_EQ(Groups({"--world-size", "4", "--pipeline", "2", "link"}), kOk);
  EXPECT_EQ(console_.out,
            "NAME              GROUP  SIZE  RANKS\n"
            "pp/0-1/values         0     2  0 2\n"
            "pp/0-1/values         1     2  1 3\n"
            "pp/1-0/gradients      0     2  2 0\n"
            "pp/1-0/gradients      1     2  3 1\n");
}

TEST_F(GroupsTest, NamesListEveryGroupWithAllItsRanks) {
  EXPECT_EQ(Groups({"--world-size", "8", "--tensor", "2", "--pipeline", "2", "mp", "tp"}), kOk);
  EXPECT_EQ(console_.out,
            "NAME  GROUP  SIZE  RANKS\n"
            "mp        0     4  0 1 4 5\n"
            "mp        1     4  2 3 6 7\n"
            "tp        0     2  0 1\n"
            "tp        1     2  2 3\n"
            "tp        2     2  4 5\n"
            "tp        3     2  6 7\n");
}

}  // namespace
}  // namespace tandem::cli
