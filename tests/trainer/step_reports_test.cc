// SPDX-License-Identifier: Apache-2.0
#include "trainer/step_reports.h"

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>

#include "tests/parity/job.h"
#include "tests/trainer/report_text.h"

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

std::map<std::string, double> SpeedOf(double seconds_at_peak, const std::string& text) {
  v1::StepReport report = ReportOf(text);
  AddSpeed(seconds_at_peak, report);
  return {report.scalars().begin(), report.scalars().end()};
}

TEST(AddSpeedTest, UtilizationIsTimeAtPeakOverTime) {
  using Scalars = std::map<std::string, double>;
  EXPECT_EQ(SpeedOf(0.5, "step: 3 tokens: 64 seconds: 2"),
            (Scalars{{"tokens_per_second", 32}, {"model_flops_utilization", 0.25}}));
  EXPECT_EQ(SpeedOf(0, "step: 3 tokens: 64 seconds: 2"), (Scalars{{"tokens_per_second", 32}})) << "unknown";
  EXPECT_EQ(SpeedOf(0.5, "step: 1 tokens: 64 seconds: 0.25"), (Scalars{{"tokens_per_second", 256}}))
      << "more than the peak is no measurement";
  EXPECT_EQ(SpeedOf(0.5, "step: 0"), Scalars()) << "a validation alone";
}

}  // namespace
}  // namespace tandem::trainer
