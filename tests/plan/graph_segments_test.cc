// SPDX-License-Identifier: Apache-2.0
#include "plan/graph_segments.h"

#include <gtest/gtest.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "jobspec/jobspec.h"
#include "schedules/simulate/device_profile.h"
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

// A job whose issue time bench/RESULTS.md has: four microbatches of one sequence on a GPU.
JobPlan MeasuredPlan(const std::string& model, int length, const std::string& scope) {
  const jobspec::ReadResult read = jobspec::ReadText(
      absl::StrCat("model: {", model,
                   "}\ndata: {train: /data}\ntraining: {steps: 10, sequence_length: ", length,
                   ", micro_batch_size: 1, global_batch_size: 4}\nprecision: {compute: bf16}\n"
                   "resources: {device: cuda}\ngraphs: {scope: \"",
                   scope, "\"}\n"),
      "measured.yaml");
  EXPECT_EQ(jobspec::ToText(read.violations), "");
  return MakeJobPlan(jobspec::Resolve(read.spec));
}

std::string SparseModel(int hidden, int heads, int head_dim, int vocabulary, int inner) {
  return absl::StrCat("model_type: qwen3_moe, hidden_size: ", hidden,
                      ", intermediate_size: 6144, num_hidden_layers: 6, num_attention_heads: ", heads,
                      ", num_key_value_heads: 4, head_dim: ", head_dim, ", vocab_size: ", vocabulary,
                      ", moe: {num_experts: 128, num_experts_per_tok: 8, moe_intermediate_size: ", inner,
                      "}");
}

TEST(GraphSegmentsTest, EveryLayersAttentionIsASegmentPerMicrobatch) {
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

TEST(GraphSegmentsTest, RouterJoinsTheAttentionAndItsReportCopied) {
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

TEST(GraphSegmentsTest, MixersAndDeltaNetsAreNamed) {
  v1::JobSpec job = TestJob();
  job.mutable_model()->set_model_type("hybrid");
  job.mutable_model()->set_hybrid_pattern("M*GM");
  job.mutable_model()->mutable_gated_delta_net()->set_num_key_heads(2);
  const GraphSegments graphs = Segments(jobspec::Resolve(job), "mamba");
  EXPECT_EQ(graphs.rows[0].passes, "forward mamba");
  EXPECT_EQ(graphs.rows[0].segments, 2 * 3);
  EXPECT_EQ(graphs.rows[1].passes, "forward gated_delta");
  EXPECT_EQ(graphs.rows[1].segments, 3);
  EXPECT_EQ(graphs.passes_in_graphs, 3 * 3 * 3);
}

// On the host of an H200. A router has more launches than an MLP.
TEST(GraphSegmentsTest, HostSavesTheMeasuredTimeWithinAFifth) {
  const schedules::DeviceProfile h200 = schedules::PresetProfile("h200").value();
  const struct {
    const char* name;
    JobPlan plan;
    double measured_ms;
  } jobs[] = {
      {"24 dense layers",
       MeasuredPlan("model_type: llama, hidden_size: 1024, intermediate_size: 2816, num_hidden_layers: 24, "
                    "num_attention_heads: 16, vocab_size: 32000",
                    512, "attention,mlp"),
       29.5 - 3.0},
      {"6 sparse layers of hidden 1024",
       MeasuredPlan(SparseModel(1024, 16, 64, 32000, 512), 1024, "attention,router"), 16.8 - 7.4},
      {"6 layers of Qwen3-30B-A3B",
       MeasuredPlan(SparseModel(2048, 32, 128, 151936, 768), 512, "attention,router"), 20.3 - 10.5},
  };
  for (const auto& [name, plan, measured_ms] : jobs) {
    const GraphCosts costs = GraphCostsOf(plan, GraphSegmentsOf(plan), h200);
    const double saved_ms = static_cast<double>(costs.passes_issue_ns - costs.graphs_issue_ns) * 1e-6;
    EXPECT_NEAR(saved_ms, measured_ms, measured_ms / 5) << name;
  }
  EXPECT_EQ(GraphCostsOf(jobs[0].plan, GraphSegmentsOf(jobs[0].plan), h200).device_bytes, 4 << 20);
}

TEST(GraphSegmentsTest, WordsThatNameNothingAreABug) {
  EXPECT_THROW(MakeJobPlan(WithGraphs(TestJob(), "atention")), std::logic_error);
  EXPECT_THROW(MakeJobPlan(WithGraphs(TestJob(), "mlp,router")), std::logic_error);
  EXPECT_TRUE(MakeJobPlan(WithGraphs(TestJob(), "none")).options.replayed.empty());
}

TEST(GraphSegmentsTest, DataHasWhatTheTableHas) {
  const GraphSegments segments = Segments(TestJob(), "attention");
  const nlohmann::json json =
      GraphSegmentsToJson(segments, {.passes_issue_ns = 7, .graphs_issue_ns = 3, .device_bytes = 0});
  EXPECT_EQ(json["passes_issue_ns"], 7);
  EXPECT_EQ(json["graphs_issue_ns"], 3);
  EXPECT_TRUE(json["device_bytes"].is_null()) << "not known";
  EXPECT_EQ(json["rows"][0]["passes"], "forward attention");
  EXPECT_EQ(json["rows"][0]["segments"], 12);
  EXPECT_EQ(json["passes_in_graphs"], 36);
}

}  // namespace
}  // namespace tandem::plan
