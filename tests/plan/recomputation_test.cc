// SPDX-License-Identifier: Apache-2.0
#include "plan/recomputation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <stdexcept>
#include <string>
#include <vector>

#include "plan/json.h"
#include "plan/text.h"
#include "tests/plan/test_job.h"

namespace tandem::plan {
namespace {

using schedules::Opcode;
using testing::ElementsAre;
using testing::UnorderedElementsAre;

JobPlan PlanWith(const std::string& recompute) {
  v1::JobSpec job = TestJob();
  job.mutable_training()->set_recompute(recompute);
  return MakeJobPlan(job);
}

// Of the value names of layer 1.
std::vector<std::string> RecomputedInLayer1(const std::string& recompute) {
  const JobPlan plan = PlanWith(recompute);
  std::vector<std::string> names;
  for (size_t value = 0; value < plan.options.recompute.size(); ++value) {
    const std::string& name = plan.outline.values[value].name;
    if (plan.options.recompute[value] && name.starts_with("layers.1.")) {
      names.push_back(name.substr(std::string("layers.1.").size()));
    }
  }
  return names;
}

int Count(const JobPlan& plan, Opcode opcode) {
  return static_cast<int>(
      std::count_if(plan.stage.train.instructions.begin(), plan.stage.train.instructions.end(),
                    [&](const auto& instruction) { return instruction.opcode == opcode; }));
}

TEST(RecomputationTest, OfALayerOnlyItsInputIsKept) {
  EXPECT_THAT(RecomputedInLayer1("layer"),
              UnorderedElementsAre("attention.hidden", "attention.qkv", "attention.context", "attention.lse",
                                   "mlp.gate_up"));
}

TEST(RecomputationTest, NodesRecomputeOnlyWhatOthersRead) {
  EXPECT_THAT(RecomputedInLayer1("attention"),
              UnorderedElementsAre("attention.qkv", "attention.context", "attention.lse"));
  EXPECT_THAT(RecomputedInLayer1("mlp"), ElementsAre("mlp.gate_up"));
  EXPECT_THAT(RecomputedInLayer1(" mlp , attention"),
              UnorderedElementsAre("attention.qkv", "attention.context", "attention.lse", "mlp.gate_up"));
}

// Validate refuses the word, and a queued job of an earlier build goes on.
TEST(RecomputationTest, HeadInAnOlderJobIsPassedOver) {
  EXPECT_EQ(PlanWith("head,layer").program_digest, PlanWith("layer").program_digest);
  EXPECT_EQ(PlanWith("head").program_digest, PlanWith("off").program_digest);
}

TEST(RecomputationTest, OutsideLayersAndInValidationNothingChanges) {
  const JobPlan plan = PlanWith("layer");
  for (const schedules::Node& node : plan.outline.nodes) {
    for (const schedules::ValueId value : node.forward.writes) {
      EXPECT_TRUE(node.layer >= 0 || !plan.options.recompute[value]) << plan.outline.values[value].name;
    }
  }
  const JobPlan off = PlanWith("off");
  EXPECT_TRUE(off.options.recompute.empty());
  EXPECT_EQ(Count(off, Opcode::kRecompute), 0);
  EXPECT_EQ(plan.stage.validate.instructions.size(), off.stage.validate.instructions.size());
}

TEST(RecomputationTest, MicrobatchRunsNodesAgainWithoutAnotherGather) {
  const JobPlan off = PlanWith("off");
  for (const auto& [recompute, nodes] : {std::pair{"layer", 2}, {"mlp", 1}}) {
    const JobPlan plan = PlanWith(recompute);
    EXPECT_EQ(Count(plan, Opcode::kRecompute), 4 * nodes * plan.train.microbatches_per_rank);
    EXPECT_EQ(Count(plan, Opcode::kUnshard), Count(off, Opcode::kUnshard));
    EXPECT_EQ(plan.parameters_digest, off.parameters_digest);
    EXPECT_NE(plan.program_digest, off.program_digest);
  }
}

TEST(RecomputationTest, LayerCostsItsForwardWithoutTheOutputProduct) {
  const JobPlan plan = PlanWith("layer");
  const Recomputation again = RecomputationOf(plan);
  double expected = 0;  // forwards of the layers, without the product that makes a layer's output
  const double tokens = static_cast<double>(TokensPerStep(plan)) / plan.topology.world;
  const auto hidden = static_cast<double>(plan.model.hidden_size);
  const auto inner = static_cast<double>(plan.model.intermediate_size);
  for (const schedules::Node& node : plan.outline.nodes) {
    if (node.layer >= 0) {
      expected += node.forward.flops * plan.train.microbatches_per_rank;
    }
  }
  expected -= 4 * tokens * 2 * inner * hidden;
  EXPECT_NEAR(again.flops / expected, 1, 1e-12);
  EXPECT_EQ(again.saved_bytes, PlanWith("off").stage.arena_bytes - plan.stage.arena_bytes);
  EXPECT_GT(again.saved_bytes, 0);
}

TEST(RecomputationTest, OverlappedJobsSavingsCompareWithOverlappedOnes) {
  const auto overlapped = [](const char* recompute) {
    v1::JobSpec job = TestJob();
    job.mutable_parallelism()->set_schedule(v1::SCHEDULE_OVERLAP);
    job.mutable_training()->set_recompute(recompute);
    return MakeJobPlan(job);
  };
  const JobPlan plan = overlapped("layer");
  const JobPlan kept = overlapped("off");
  ASSERT_NE(kept.stage.arena_bytes, PlanWith("off").stage.arena_bytes);
  EXPECT_EQ(RecomputationOf(plan).saved_bytes, kept.stage.arena_bytes - plan.stage.arena_bytes);
}

TEST(RecomputationTest, ThePlanSaysWhatItCostsAndSaves) {
  const JobPlan plan = PlanWith("attention,mlp");
  EXPECT_THAT(
      PlanToText(plan, {}),
      testing::ContainsRegex("  recomputed +attention, mlp: [0-9.]+ [MG]FLOPs a rank \\([0-9.]+ % more\\), "
                             "for an arena of [0-9.]+ [KM]iB less\n"));
  EXPECT_THAT(PlanToText(PlanWith("off"), {}), testing::Not(testing::HasSubstr("recomputed")));
  const nlohmann::json json = PlanToJson(plan)["step"]["recompute"];
  const Recomputation again = RecomputationOf(plan);
  EXPECT_EQ(json["what"], (std::vector<std::string>{"attention", "mlp"}));
  EXPECT_EQ(json["flops_of_a_rank"], again.flops);
  EXPECT_EQ(json["saved_arena_bytes"], again.saved_bytes);
  EXPECT_TRUE(PlanToJson(PlanWith("off"))["step"]["recompute"].is_null());
}

TEST(RecomputationTest, WordWithoutANodeIsRefused) {
  for (const char* words : {"norms", "embedding", "layers", "head,norms", "attention,experts"}) {
    EXPECT_THROW(PlanWith(words), std::logic_error) << words;
  }
}

}  // namespace
}  // namespace tandem::plan
