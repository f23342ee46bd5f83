#include "plan/text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "plan/memory.h"
#include "schedules_v1/text.h"
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
  EXPECT_THAT(text, ContainsRegex("  layers.0-3 +[0-9,]+ +[0-9,]+ +p1 g1 +6 +3\n  head "));
  EXPECT_THAT(text, ContainsRegex("parameters p1 +2 x [0-9.]+ KiB\n"));
  EXPECT_THAT(text, ContainsRegex("train +[0-9]+ instructions, 3 microbatches, [0-9]+ waits"));
  EXPECT_THAT(text, Not(HasSubstr("unshard")));
}

TEST(PlanTextTest, ProgramsComeWhenAskedFor) {
  const JobPlan plan = MakeJobPlan(TestJob());
  const std::string text = PlanToText(plan, {.program = true});
  EXPECT_THAT(text, HasSubstr(schedules_v1::ToText(plan.train_program, plan.outline_v1)));
  EXPECT_THAT(text, HasSubstr(schedules_v1::ToText(plan.validate_program, plan.outline_v1)));
}

TEST(PlanTextTest, JsonHoldsTheSameNumbers) {
  const JobPlan plan = MakeJobPlan(TestJob());
  const nlohmann::json json = nlohmann::json::parse(PlanToJson(plan).dump());
  const MemoryPlan memory = PlanMemory(plan);
  EXPECT_EQ(json["step"]["tokens"], 768);
  EXPECT_EQ(json["step"]["microbatches_per_rank"], 3);
  EXPECT_EQ(json["model"]["parameters"], model::NumParameters(plan.model));
  EXPECT_EQ(json["memory"]["arena_bytes"], memory.arena_bytes);
  EXPECT_EQ(json["memory"]["categories"].size(), memory.categories.size());
  EXPECT_EQ(json["memory"]["buffers"].size(), PersistentBuffers(plan).size());
  EXPECT_EQ(json["units"][1]["name"], "layers.0");
  EXPECT_EQ(json["units"][1]["gathers"], 6);
  EXPECT_EQ(json["units"][1]["reductions"], 3);
  EXPECT_EQ(json["programs"]["train"]["instructions"].size(), plan.train_program.instructions.size());
  EXPECT_EQ(json["programs"]["validate"]["instructions"].size(), plan.validate_program.instructions.size());
  EXPECT_EQ(json["program_digest"], plan.program_digest);
}

}  // namespace
}  // namespace tandem::plan
