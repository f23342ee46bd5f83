// SPDX-License-Identifier: Apache-2.0
#include "trainer/step_reports.h"

#include <gtest/gtest.h>

#include <exception>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "platform/files.h"
#include "tests/comm/run_thread_ranks.h"
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

TEST(StepReportsTest, RankZeroReportsItsSpeed) {
  const plan::JobPlan plan = PlanOf("replicate", 1);
  const checkpoint::Owner self{};
  const std::string no_report;
  std::vector<v1::StepReport> sent;
  comm::RunThreadRanks(1, [&](comm::Communicator& comm) {
    StepReports reports(
        platform::SystemFiles(), comm, plan, /*seconds_at_peak=*/0.5, /*resumed_step=*/0, no_report, self,
        [&](const v1::FromTrainer& message) {
          if (message.has_report()) {
            sent.push_back(message.report());
          }
        },
        [](const std::exception_ptr&) { ADD_FAILURE() << "a report failed"; });
    RunRecord run;
    run.run.computed = 1;
    run.losses = {3};
    run.outcome.divisor = 1;
    reports.Computed(run, /*seconds=*/2);
    reports.Submit();
    reports.Flush();
  });
  ASSERT_EQ(sent.size(), 1u);
  EXPECT_EQ(sent[0].scalars().at("tokens_per_second"), static_cast<double>(plan::TokensPerStep(plan)) / 2);
  EXPECT_EQ(sent[0].scalars().at("model_flops_utilization"), 0.25);
}

}  // namespace
}  // namespace tandem::trainer
