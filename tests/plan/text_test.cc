// SPDX-License-Identifier: Apache-2.0
#include "plan/text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fsdp/unit_mesh.h"
#include "model/parameter_and_flop_counts.h"
#include "plan/json.h"
#include "plan/layout_text.h"
#include "plan/memory_plan.h"
#include "plan/quantity_text.h"
#include "schedules/program/text.h"
#include "tests/plan/test_job.h"

namespace tandem::plan {
namespace {

using testing::ContainsRegex;
using testing::HasSubstr;
using testing::Not;

TEST(PlanTextTest, SaysWhatAUserAsksFirst) {
  const JobPlan plan = MakeJobPlan(TestJob());
  const std::string text = PlanToText(plan, {});
  EXPECT_THAT(text, HasSubstr("Plan of small\n"));
  EXPECT_THAT(text, ContainsRegex("tokens +768 = ranks 2 x microbatches 3 x sequences 2 x length 64\n"));
  EXPECT_THAT(text, ContainsRegex("parameters +[0-9,]+\n"));
  EXPECT_THAT(text, ContainsRegex("FLOPs a token +[0-9.]+ [MG]\n"));
  EXPECT_THAT(text, ContainsRegex("arena +[0-9.]+ MiB +[0-9,]+\n"));
  EXPECT_THAT(text, ContainsRegex("  layers.0-3 +[0-9,]+ +[0-9,]+ +[0-9.]+ KiB +6 +3\n  head "));
  EXPECT_THAT(text,
              ContainsRegex("budget of a run +[0-9.]+ MiB; at least [0-9.]+ MiB, by default [0-9.]+ MiB, "));
  EXPECT_THAT(text, ContainsRegex("train +[0-9]+ instructions, 3 microbatches, [0-9]+ waits between streams, "
                                  "[0-9]+ of them for memory\n"));
  EXPECT_THAT(text, ContainsRegex("update +[0-9]+ instructions, [0-9]+ waits"));
  EXPECT_THAT(text, ContainsRegex("communicators +gather \\(dp_cp_ag, 2 ranks\\), "));
  EXPECT_THAT(text, Not(HasSubstr("unshard")));
}

// A hidden size of 90 pads every unit; of the experts of SparseJob a rank has a quarter.
TEST(PlanTextTest, UnitsAddUpToTheModelsParameters) {
  v1::JobSpec padded = TestJob();
  padded.mutable_model()->set_hidden_size(90);
  padded.mutable_model()->set_head_dim(30);
  for (const v1::JobSpec& spec : {TestJob(), padded, SparseJob("sequential", "exact")}) {
    const JobPlan plan = MakeJobPlan(spec);
    const nlohmann::json json = nlohmann::json::parse(PlanToJson(plan).dump());
    int64_t sum = 0;
    for (const nlohmann::json& unit : json["units"]) {
      sum += unit["parameters"].get<int64_t>();
    }
    EXPECT_EQ(sum, model::NumParameters(plan.model)) << json["units"];
    const std::string text = PlanToText(plan, {});
    EXPECT_THAT(text, HasSubstr("      parameters "));
    const nlohmann::json& unit = json["units"][1];
    EXPECT_THAT(text, ContainsRegex("  layers\\.0[^ ]* +" + GroupedText(unit["parameters"]) + " +" +
                                    GroupedText(unit["shard_elements"]) + " "));
  }
}

TEST(PlanTextTest, SaysThatTokensAreDealt) {
  v1::JobSpec spec = SparseJob("sequential", "exact");
  EXPECT_THAT(PlanToText(MakeJobPlan(spec), {}), Not(HasSubstr("dealt")));
  spec.mutable_debug()->set_balanced_routing(true);
  EXPECT_THAT(PlanToText(MakeJobPlan(spec), {}),
              ContainsRegex("experts .* a token; .* active; dealt evenly, for measurements of speed\n"));
}

TEST(PlanTextTest, SaysForHowManyRowsThereIsRoom) {
  v1::JobSpec spec = SparseJob("sequential", "exact");
  EXPECT_THAT(PlanToText(MakeJobPlan(spec), {}), Not(HasSubstr("room for rows")));
  const int64_t arena = MakeJobPlan(spec).stage.arena_bytes;
  spec.mutable_parallelism()->mutable_dispatch()->set_most_rows(1.25);
  const JobPlan plan = MakeJobPlan(spec);
  EXPECT_THAT(PlanToText(plan, {}),
              ContainsRegex("room for rows +1\\.25 times the expected: [0-9,]+ of at most [0-9,]+ that"));
  EXPECT_EQ(PlanToJson(plan)["model"]["moe"]["most_rows"], 1.25);
  EXPECT_LT(plan.stage.arena_bytes, arena);
}

TEST(PlanTextTest, SaysWhatASavingJobCopies) {
  v1::JobSpec spec = TestJob();
  EXPECT_THAT(PlanToText(MakeJobPlan(spec), {}), Not(HasSubstr("host, copies to save")));
  spec.mutable_checkpoint()->set_directory("/checkpoints");
  const JobPlan plan = MakeJobPlan(spec);
  EXPECT_THAT(PlanToText(plan, {}), ContainsRegex("host, copies to save +[0-9.]+ MiB"));
  EXPECT_THAT(PlanToText(plan, {}), ContainsRegex("train_save +[0-9]+ instructions, 3 microbatches"));
  const nlohmann::json memory = PlanToJson(plan)["memory"];
  EXPECT_GE(memory["saved_bytes"].get<int64_t>(), 12 * model::NumParameters(plan.model) / 2);
}

TEST(PlanTextTest, SaysHowPackedDocumentsAreCounted) {
  v1::JobSpec spec = TestJob();
  EXPECT_THAT(PlanToText(MakeJobPlan(spec), {}), Not(HasSubstr("documents")));
  spec.mutable_data()->set_documents(v1::DOCUMENTS_PACKED);
  EXPECT_THAT(PlanToText(MakeJobPlan(spec), {}),
              ContainsRegex("documents +packed; FLOPs are counted as of attention to whole sequences\n"));
  EXPECT_EQ(nlohmann::json::parse(PlanToJson(MakeJobPlan(spec)).dump())["step"]["packs_documents"], true);
}

TEST(PlanTextTest, ProgramsComeWhenAskedFor) {
  const JobPlan plan = MakeJobPlan(TestJob());
  const std::string text = PlanToText(plan, {.program = true});
  ASSERT_EQ(plan.stage.All().size(), 4u);
  for (const schedules::Program* program : plan.stage.All()) {
    EXPECT_THAT(text, HasSubstr(schedules::ToText(*program, plan.outline)));
  }
}

TEST(PlanTextTest, JsonHoldsTheSameNumbers) {
  const JobPlan plan = MakeJobPlan(TestJob());
  const nlohmann::json json = nlohmann::json::parse(PlanToJson(plan).dump());
  const MemoryPlan memory = PlanMemory(plan);
  EXPECT_EQ(json["step"]["tokens"], 768);
  EXPECT_EQ(json["step"]["microbatches_per_rank"], 3);
  EXPECT_EQ(json["model"]["parameters"], model::NumParameters(plan.model));
  EXPECT_EQ(json["memory"]["arena_bytes"], memory.arena_bytes);
  EXPECT_EQ(json["memory"]["budget_bytes"], memory.budget_bytes);
  int64_t persistent = 0;
  for (const nlohmann::json& kind : json["memory"]["kinds"]) {
    persistent += kind["bytes"].get<int64_t>();
  }
  EXPECT_EQ(persistent, schedules::Total(memory.persistent));
  EXPECT_EQ(json["communicators"].size(), CommunicatorUses(plan).size());
  EXPECT_EQ(json["units"][1]["name"], "layers.0");
  EXPECT_EQ(json["units"][1]["gathers"], 6);
  EXPECT_EQ(json["units"][1]["reductions"], 3);
  for (const schedules::Program* program : plan.stage.All()) {
    EXPECT_EQ(json["programs"][program->name]["instructions"].size(), program->instructions.size());
    EXPECT_EQ(json["programs"][program->name]["buffers"].size(), program->buffers.size());
  }
  EXPECT_EQ(json["program_digest"], plan.program_digest);
}

using ::testing::HasSubstr;
using ::testing::Not;

std::string TextOf(const std::string& parallelism) { return LayoutText(MakeJobPlan(TestJob(parallelism))); }

TEST(LayoutTextTest, NamesTheAxesTheirGroupsAndTheirShares) {
  EXPECT_THAT(
      TextOf("{ranks: 2}"),
      HasSubstr("Placement of dense units: zero3\n"
                "  each rank has          of parameters a shard, of gradients a shard, of the optimizer's "
                "state a shard, over dp_cp of 2 ranks\n"
                "  gathers in             dp_cp_ag\n"
                "Process groups\n"
                "  dp_cp                  1 group of 2 ranks\n"
                "  dp_cp_ag               1 group of 2 ranks, clones of dp_cp\n"));
  const std::string replicas = TextOf("{ranks: 6, replicas: 2, fsdp: {strategy: hsdp}}");
  EXPECT_THAT(replicas, HasSubstr("over intra_dp_cp of 3 ranks\n"));
  EXPECT_THAT(replicas,
              HasSubstr("of gradients a partial sum, of the optimizer's state all, over inter_dp_cp of "
                        "2 ranks\n"));
  EXPECT_THAT(replicas, HasSubstr("  dp_cp_ag               2 groups of 3 ranks, clones of intra_dp_cp\n"));
}

// What a strategy keeps is read from the buffers of the program, and from no table of strategies.
TEST(LayoutTextTest, EachBufferNamesItsPartOfTheUnit) {
  const auto part = [](const std::string& text, const std::string& buffer) {
    const size_t row = text.find("    " + buffer + " ", text.find("  layers.0: "));
    const size_t end = text.find(" of the unit", row);
    return text.substr(text.rfind("  ", end) + 2, end - text.rfind("  ", end) - 2);
  };
  const struct {
    const char* strategy;
    const char* weights;
    const char* gradients;
  } expected[] = {{"replicate", "all", "all"}, {"zero1", "1/6", "1/6"}, {"zero3", "1/6", "1/6"}};
  for (const auto& [strategy, weights, gradients] : expected) {
    const std::string text = TextOf(std::string("{ranks: 6, fsdp: {strategy: ") + strategy + "}}");
    EXPECT_EQ(part(text, "weights"), weights) << strategy << "\n" << text;
    EXPECT_EQ(part(text, "optimizer state"), weights) << strategy;
    EXPECT_EQ(part(text, "gradients"), gradients) << strategy;
  }
  const std::string hfsdp = TextOf("{ranks: 6, replicas: 2, fsdp: {strategy: hfsdp}}");
  EXPECT_EQ(part(hfsdp, "weights"), "1/6");
  const std::string hsdp = TextOf("{ranks: 6, replicas: 2, fsdp: {strategy: hsdp}}");
  EXPECT_EQ(part(hsdp, "weights"), "1/3");
}

// Contributions travel in the transport type, sums of them in the main type.
TEST(LayoutTextTest, StagingHasTheTypeOfWhatIsReduced) {
  const auto row = [](const std::string& parallelism, const std::string& buffer) {
    const std::string text = LayoutText(MakeJobPlan(TestJob(parallelism, "{compute: bf16}")));
    const size_t begin = text.find("    " + buffer + " ", text.find("  layers.0: "));
    return begin < text.find("  layers.1: ") ? text.substr(begin, text.find('\n', begin) - begin) : "";
  };
  const std::string of_run = "staging, once a step";
  for (const char* strategy : {"replicate", "zero1"}) {
    const std::string parallelism = std::string("{ranks: 6, fsdp: {strategy: ") + strategy + "}}";
    EXPECT_THAT(row(parallelism, of_run), HasSubstr("  all of the unit, 4 B an element")) << strategy;
    EXPECT_EQ(row(parallelism, "staging"), "") << strategy;
  }
  EXPECT_THAT(row("{ranks: 6}", "staging"), HasSubstr("  all of the unit, 2 B an element"));
  EXPECT_EQ(row("{ranks: 6}", of_run), "");
  const std::string hsdp = "{ranks: 6, replicas: 2, fsdp: {strategy: hsdp}}";
  EXPECT_THAT(row(hsdp, "staging"), HasSubstr("  all of the unit, 2 B an element"));
  EXPECT_THAT(row(hsdp, of_run), HasSubstr("  1/3 of the unit, 4 B an element"));
}

TEST(LayoutTextTest, EveryUnitsParametersAndPaddingAreThere) {
  const JobPlan plan = MakeJobPlan(TestJob("{ranks: 3}"));
  const std::string text = LayoutText(plan);
  for (size_t unit = 0; unit < plan.layouts.size(); ++unit) {
    int64_t elements = 0;
    for (const fsdp::Parameter& parameter : plan.layouts[unit][0].parameters) {
      elements += parameter.range.size();
      EXPECT_THAT(text, HasSubstr("    " + parameter.name + " ["));
      EXPECT_THAT(text, HasSubstr("] @" + std::to_string(parameter.range.begin) + "+" +
                                  std::to_string(parameter.range.size()) + "\n"));
    }
    const int64_t padding = fsdp::PaddedElements(plan.layouts[unit][0], MeshOf(plan, unit, 0)) - elements;
    EXPECT_THAT(text, HasSubstr("  " + plan.units[unit].name + ": " + GroupedText(elements) +
                                " elements, padding " + GroupedText(padding) + " ("));
  }
  EXPECT_THAT(text, Not(HasSubstr("expert")));
}

}  // namespace
}  // namespace tandem::plan
