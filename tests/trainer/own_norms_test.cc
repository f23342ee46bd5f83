// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <set>
#include <string>

#include "tests/parity/job.h"
#include "trainer/step_reports.h"

namespace tandem::trainer {
namespace {

plan::JobPlan PlanOf(const std::string& strategy, int ranks) {
  parity::JobOptions options;
  options.ranks = ranks;
  options.strategy = strategy;
  return parity::MakeJob(options);
}

TEST(OwnNormsTest, EveryParametersNormsHaveAnOwner) {
  for (const char* strategy : {"replicate", "zero1", "zero2", "zero3"}) {
    const plan::JobPlan plan = PlanOf(strategy, 4);
    std::set<int64_t> owned;
    for (int rank = 0; rank < 4; ++rank) {
      for (const OwnNorm& norm : OwnNormsOf(plan, rank)) {
        owned.insert(norm.in_table);
      }
    }
    EXPECT_EQ(owned.size(), TrainedParameters(plan).size()) << strategy;
  }
}

TEST(OwnNormsTest, ShardHasItsParametersNorms) {
  const plan::JobPlan plan = PlanOf("zero3", 4);
  const size_t parameters = TrainedParameters(plan).size();
  size_t sent = 0;
  for (int rank = 0; rank < 4; ++rank) {
    const std::vector<OwnNorm> own = OwnNormsOf(plan, rank);
    EXPECT_LT(own.size(), parameters) << rank;
    sent += own.size();
  }
  // A boundary between shards cuts one parameter at most.
  EXPECT_LE(sent, parameters + 3 * plan.units.size());
}

TEST(OwnNormsTest, OneOfTheReplicasSendsThem) {
  const plan::JobPlan plan = PlanOf("replicate", 3);
  EXPECT_EQ(OwnNormsOf(plan, 0).size(), TrainedParameters(plan).size());
  EXPECT_TRUE(OwnNormsOf(plan, 1).empty());
  EXPECT_TRUE(OwnNormsOf(plan, 2).empty());
}

}  // namespace
}  // namespace tandem::trainer
