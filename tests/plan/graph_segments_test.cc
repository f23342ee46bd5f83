// SPDX-License-Identifier: Apache-2.0
#include "plan/graph_segments.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/plan/test_job.h"

namespace tandem::plan {
namespace {

using testing::HasSubstr;

TEST(GraphSegmentsTest, AttentionOfEveryLayerAndMicrobatchIsASegment) {
  const JobPlan plan = MakeJobPlan(TestJob());
  const GraphSegments graphs = GraphSegmentsOf(plan, "attention").value();
  ASSERT_EQ(graphs.rows.size(), 2u);
  EXPECT_EQ(graphs.rows[0].passes, "forward attention");
  EXPECT_EQ(graphs.rows[0].segments, 4 * 3);
  EXPECT_EQ(graphs.rows[1].passes, "backward-input attention, backward-weight attention");
  EXPECT_EQ(graphs.rows[1].segments, 4 * 3);
  EXPECT_GE(graphs.rows[0].graphs, 4);
  EXPECT_LE(graphs.rows[0].graphs, 4 * 3);
  EXPECT_EQ(graphs.passes_in_graphs, 3 * 4 * 3);
  EXPECT_GT(graphs.passes, graphs.passes_in_graphs);
  EXPECT_EQ(graphs.ring_operands, 0);
}

TEST(GraphSegmentsTest, ARouterJoinsTheAttentionBeforeIt) {
  const JobPlan plan = MakeJobPlan(SparseJob("sequential", "exact"));
  const GraphSegments attention = GraphSegmentsOf(plan, "attention").value();
  const GraphSegments both = GraphSegmentsOf(plan, "attention,router,preprocess").value();
  EXPECT_EQ(both.rows[0].passes.rfind("forward attention, forward route", 0), 0u) << both.rows[0].passes;
  EXPECT_GT(both.passes_in_graphs, attention.passes_in_graphs);
}

TEST(GraphSegmentsTest, WordsThatNameNothingAreRefused) {
  const JobPlan plan = MakeJobPlan(TestJob());
  EXPECT_THAT(
      std::string(GraphSegmentsOf(plan, "atention").status().message()),
      HasSubstr("\"atention\" is not a part of a layer; allowed: attention, router, preprocess, mlp"));
  EXPECT_EQ(std::string(GraphSegmentsOf(plan, "mlp,router").status().message()),
            "this model has no router; leave the word out");
  EXPECT_FALSE(GraphSegmentsOf(plan, "").ok());
}

TEST(GraphSegmentsTest, DataHasWhatTheTableHas) {
  const nlohmann::json json =
      GraphSegmentsToJson(GraphSegmentsOf(MakeJobPlan(TestJob()), "attention").value());
  EXPECT_EQ(json["rows"][0]["passes"], "forward attention");
  EXPECT_EQ(json["rows"][0]["segments"], 12);
  EXPECT_EQ(json["passes_in_graphs"], 36);
}

}  // namespace
}  // namespace tandem::plan
