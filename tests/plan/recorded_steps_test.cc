// SPDX-License-Identifier: Apache-2.0
#include "plan/recorded_steps.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "nlohmann/json.hpp"
#include "plan/prediction.h"
#include "schedules/simulate/simulator.h"
#include "tests/plan/test_job.h"

namespace tandem::plan {
namespace {

using testing::HasSubstr;

schedules::DeviceProfile Device() {
  return {.name = "true",
          .compute = {{"fp32", {.flops_per_second = 3e9}}},
          .memory_bytes_per_second = 2e9,
          .overhead_seconds = 2e-6,
          .link = {.bytes_per_second = 1e9}};
}

// A step as one of two ranks would record it on that device, with so much processor time an instruction.
v1::StepTimeline Record(const JobPlan& plan, const schedules::Program& program, int64_t step, bool serialized,
                        int rank, int64_t cpu_ns = -1) {
  const schedules::Timeline timeline =
      schedules::Simulate(plan.outline, program, WorkloadOf(plan), Device()).timeline;
  v1::StepTimeline recorded;
  recorded.set_program(program.name);
  recorded.set_rank(rank);
  recorded.set_step(step);
  recorded.set_serialized(serialized);
  recorded.set_start_unix_ns(1'700'000'000'000'000'000 + step * 1'000'000'000);
  for (const schedules::InstructionTime& time : timeline.instructions) {
    recorded.add_start_ns(time.start_ns);
    recorded.add_end_ns(time.end_ns);
    recorded.add_cpu_ns(cpu_ns);
  }
  return recorded;
}

std::vector<v1::StepTimeline> RecordBothRanks(const JobPlan& plan, const schedules::Program& program,
                                              int64_t step, bool serialized) {
  return {Record(plan, program, step, serialized, 0), Record(plan, program, step, serialized, 1)};
}

TEST(RecordedStepsTest, ProfilePredictsTheStepItWasRecordedFrom) {
  const JobPlan plan = MakeJobPlan(TestJob());
  const std::vector<v1::StepTimeline> steps = RecordBothRanks(plan, plan.stage.train, 7, false);
  ASSERT_EQ(CheckRecorded(plan, steps), absl::OkStatus());
  schedules::DeviceProfile base = Device();
  base.compute["fp32"].flops_per_second = 1;  // not used
  const schedules::DeviceProfile profile = RecordedProfile(plan, steps, base, 2);
  const Prediction prediction = *Predict(plan, profile);
  EXPECT_EQ(prediction.simulation.estimated + prediction.simulation.scaled, 0);
  EXPECT_NEAR(static_cast<double>(prediction.step_ns) / static_cast<double>(Predict(plan, Device())->step_ns),
              1, 0.01);
}

// Compute that sleeps, or that another device does, takes no processor time: how long it ran says what it
// takes, and only a serialized step says how long it ran undisturbed.
TEST(RecordedStepsTest, ASerializedStepPredictsWorkThatMostlyWaits) {
  const JobPlan plan = MakeJobPlan(TestJob());
  std::vector<v1::StepTimeline> steps;
  const auto predicted = [&] {
    schedules::DeviceProfile base = Device();
    base.overhead_seconds = 0;
    return static_cast<double>(Predict(plan, RecordedProfile(plan, steps, base, 2))->step_ns) /
           static_cast<double>(Predict(plan, Device())->step_ns);
  };
  for (const int rank : {0, 1}) {
    steps.push_back(Record(plan, plan.stage.train, 7, /*serialized=*/false, rank, /*cpu_ns=*/100));
  }
  EXPECT_LT(predicted(), 0.5) << "side by side, waiting cannot be distinguished from having been disturbed";
  for (const int rank : {0, 1}) {
    steps.push_back(Record(plan, plan.stage.train, 8, /*serialized=*/true, rank, /*cpu_ns=*/100));
  }
  EXPECT_NEAR(predicted(), 1, 0.01);
}

// The step before a recorded one may have been applied by a run of its own.
TEST(RecordedStepsTest, InstructionsOfOnlyOneProgramAreMeasuredThere) {
  const JobPlan plan = MakeJobPlan(TestJob());
  std::vector<v1::StepTimeline> steps = RecordBothRanks(plan, plan.stage.train, 7, false);
  for (const v1::StepTimeline& step : RecordBothRanks(plan, plan.stage.begin, 8, true)) {
    steps.push_back(step);
  }
  ASSERT_EQ(CheckRecorded(plan, steps), absl::OkStatus());
  const schedules::DeviceProfile profile = RecordedProfile(plan, steps, Device(), 2);
  std::set<std::string> kinds;
  for (const schedules::MeasuredTime& time : profile.measured) {
    EXPECT_GT(time.samples, 0) << time.kind;
    kinds.insert(time.kind);
  }
  EXPECT_EQ(kinds.count("optimizer layers.*"), 1u) << "only `train` has it";
  EXPECT_EQ(kinds.count("forward layers.*.mlp fp32"), 1u);
  EXPECT_EQ(Predict(plan, profile)->simulation.estimated, 0);
}

TEST(RecordedStepsTest, ProfileCountsItsStepsAndRanks) {
  const JobPlan plan = MakeJobPlan(TestJob());
  schedules::DeviceProfile base = Device();
  base.describe = "a preset";
  std::vector<v1::StepTimeline> steps = {Record(plan, plan.stage.train, 7, false, 0)};
  EXPECT_EQ(RecordedProfile(plan, steps, base, 2).describe,
            "measured from 1 step that 1 rank of job small recorded; rates: a preset");
  for (const bool serialized : {false, true}) {
    for (const v1::StepTimeline& step :
         RecordBothRanks(plan, plan.stage.train, serialized ? 9 : 8, serialized)) {
      steps.push_back(step);
    }
  }
  EXPECT_EQ(RecordedProfile(plan, steps, base, 2).describe,
            "measured from 3 steps that 2 ranks of job small recorded; rates: a preset");
}

TEST(RecordedStepsTest, StepsOfAnotherProgramAreRefused) {
  const JobPlan plan = MakeJobPlan(TestJob());
  std::vector<v1::StepTimeline> steps = RecordBothRanks(plan, plan.stage.train, 7, false);
  steps[1].add_start_ns(0);
  EXPECT_THAT(
      std::string(CheckRecorded(plan, steps).message()),
      testing::ContainsRegex("rank 1 recorded a program \"train\" of [0-9]+ instructions, this build plans "
                             "\"train\" of [0-9]+ and \"begin\" of [0-9]+ for the job; use the build"));
  steps = RecordBothRanks(plan, plan.stage.update, 7, false);
  EXPECT_THAT(std::string(CheckRecorded(plan, steps).message()), HasSubstr("recorded a program \"update\""));
}

TEST(RecordedStepsTest, TraceOrdersEveryRanksStepsByClock) {
  const JobPlan plan = MakeJobPlan(TestJob());
  std::vector<v1::StepTimeline> steps = RecordBothRanks(plan, plan.stage.begin, 7, false);
  for (const v1::StepTimeline& step : RecordBothRanks(plan, plan.stage.train, 8, false)) {
    steps.push_back(step);
  }
  const nlohmann::json trace = nlohmann::json::parse(RecordedTrace(plan, steps));
  std::set<std::pair<int, std::string>> programs;
  double first_of_train = -1;
  for (const nlohmann::json& event : trace["traceEvents"]) {
    if (event["ph"] == "X") {
      const std::string program = event["args"]["program"];
      programs.insert({event["pid"], program});
      if (program == "train" && event["name"] == "optimizer embedding") {
        first_of_train = event["ts"];
      }
    }
  }
  EXPECT_EQ(programs.size(), 4u);
  EXPECT_GE(first_of_train, 1e6) << "microseconds: it began a second after the first";
}

}  // namespace
}  // namespace tandem::plan
