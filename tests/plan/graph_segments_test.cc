// SPDX-License-Identifier: Apache-2.0
#include "plan/graph_segments.h"

#include <gtest/gtest.h>

#include "tests/plan/test_job.h"

namespace tandem::plan {
namespace {

v1::JobSpec WithGraphs(v1::JobSpec job, const std::string& scope) {
  job.mutable_graphs()->set_scope(scope);
  return job;
}

GraphSegments Segments(const v1::JobSpec& job, const std::string& scope) {
  return GraphSegmentsOf(MakeJobPlan(WithGraphs(job, scope)));
}

TEST(GraphSegmentsTest, AttentionOfEveryLayerAndMicrobatchIsASegment) {
  const GraphSegments graphs = Segments(TestJob(), "attention");
  ASSERT_EQ(graphs.rows.size(), 2u);
  EXPECT_EQ(graphs.rows[0].passes, "forward attention");
  EXPECT_EQ(graphs.rows[0].segments, 4 * 3);
  EXPECT_EQ(graphs.rows[1].passes, "backward-input attention, backward-weight attention");
  EXPECT_EQ(graphs.rows[1].segments, 4 * 3);
  EXPECT_EQ(graphs.period, 1);
  EXPECT_GE(graphs.graphs, 2 * 4);
  EXPECT_LT(graphs.graphs, 2 * 4 * 3);
  EXPECT_EQ(graphs.passes_in_graphs, 3 * 4 * 3);
  EXPECT_GT(graphs.passes, graphs.passes_in_graphs);
  EXPECT_EQ(graphs.copies, 0);
}

TEST(GraphSegmentsTest, ARouterJoinsTheAttentionBeforeItAndItsReportIsCopied) {
  const v1::JobSpec job = SparseJob("sequential", "exact");
  const GraphSegments attention = Segments(job, "attention");
  const GraphSegments both = Segments(job, "attention,router,preprocess");
  EXPECT_EQ(both.rows[0].passes, "forward attention, forward route, forward permute");
  EXPECT_GT(both.passes_in_graphs, attention.passes_in_graphs);
  EXPECT_EQ(attention.copies, 0);
  EXPECT_EQ(both.copies, both.rows[0].segments);
}

// On one rank no layer's forward waits for anything.
TEST(GraphSegmentsTest, LayersOfOneSegmentAreCounted) {
  const GraphSegments graphs = Segments(TestJob("{ranks: 1}"), "attention,mlp");
  EXPECT_EQ(graphs.rows[0].passes, "4 x (forward attention, forward mlp)");
}

TEST(GraphSegmentsTest, WordsThatNameNothingAreABug) {
  EXPECT_THROW(MakeJobPlan(WithGraphs(TestJob(), "atention")), std::logic_error);
  EXPECT_THROW(MakeJobPlan(WithGraphs(TestJob(), "mlp,router")), std::logic_error);
  EXPECT_TRUE(MakeJobPlan(WithGraphs(TestJob(), "none")).options.replayed.empty());
}

TEST(GraphSegmentsTest, DataHasWhatTheTableHas) {
  const nlohmann::json json = GraphSegmentsToJson(Segments(TestJob(), "attention"));
  EXPECT_EQ(json["rows"][0]["passes"], "forward attention");
  EXPECT_EQ(json["rows"][0]["segments"], 12);
  EXPECT_EQ(json["passes_in_graphs"], 36);
}

}  // namespace
}  // namespace tandem::plan
