// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "fsdp/layout.h"
#include "tests/parity/expect_same.h"
#include "tests/parity/job.h"
#include "tests/parity/run.h"

namespace tandem::parity {
namespace {

// One layout, one number of ranks: how the work is arranged changes no bit.

class ScheduleTest : public testing::TestWithParam<bool> {};  // tied

TEST_P(ScheduleTest, PrefetchDistanceChangesNoBit) {
  JobOptions options{.ranks = 2, .microbatches_per_rank = 3, .steps = 5, .tied = GetParam(), .prefetch = 0};
  const JobRun without = RunJob(MakeJob(options));
  for (const int prefetch : {1, 2}) {
    SCOPED_TRACE(prefetch);
    options.prefetch = prefetch;
    ExpectSameBits(without, RunJob(MakeJob(options)));
  }
}

TEST_P(ScheduleTest, MemoryIsNeverReadBeforeItIsWritten) {
  const JobOptions options{
      .ranks = 2, .microbatches_per_rank = 2, .steps = 4, .tied = GetParam(), .validate_every_steps = 2};
  const plan::JobPlan plan = MakeJob(options);
  ExpectSameBits(RunJob(plan), RunJob(plan, {.fill_with_nan = true}));
}

TEST_P(ScheduleTest, ValidationBetweenStepsChangesNoTrainingBit) {
  JobOptions options{.ranks = 2, .microbatches_per_rank = 2, .steps = 6, .tied = GetParam()};
  const JobRun without = RunJob(MakeJob(options));
  options.validate_every_steps = 2;
  const JobRun with = RunJob(MakeJob(options));
  JobRun trained = with;
  trained.start.reset();
  for (v1::StepReport& step : trained.steps) {
    step.mutable_scalars()->erase("validation_loss");
  }
  ExpectSameBits(without, trained);
  EXPECT_FALSE(without.start.has_value());
  for (const v1::StepReport& step : with.steps) {
    EXPECT_EQ(step.scalars().contains("validation_loss"), step.step() % 2 == 0) << step.step();
  }
  // Before the first update.
  ASSERT_TRUE(with.start.has_value());
  EXPECT_LT(with.steps.back().scalars().at("validation_loss"), with.start->scalars().at("validation_loss"));
}

INSTANTIATE_TEST_SUITE_P(Heads, ScheduleTest, testing::Bool(),
                         [](const auto& info) { return info.param ? "Tied" : "Untied"; });

TEST(ValidationTest, LossIsThatOfTheSameMicrobatchesOnAnyNumberOfRanks) {
  JobOptions options{.steps = 3, .validate_every_steps = 3};
  const auto validation_loss = [&](int ranks, int64_t batches) {
    options.ranks = ranks;
    options.microbatches_per_rank = 4 / ranks;
    options.validation_batches = batches;
    return RunJob(MakeJob(options)).steps.back().scalars().at("validation_loss");
  };
  for (const int64_t batches : {1, 3, 4}) {  // fewer than ranks, not a multiple, a multiple
    const double one = validation_loss(1, batches);
    EXPECT_EQ(one, validation_loss(2, batches)) << batches;
    EXPECT_EQ(one, validation_loss(4, batches)) << batches;
  }
  EXPECT_NE(validation_loss(1, 3), validation_loss(1, 4));
}

TEST(ReportTest, ParameterNormsCanBeOff) {
  JobOptions options{.ranks = 2, .steps = 2, .norms = false};
  const JobRun run = RunJob(MakeJob(options));
  ASSERT_EQ(run.steps.size(), 2u);
  EXPECT_TRUE(run.steps[0].norms().weight().empty());
  EXPECT_GT(run.steps[0].grad_norm(), 0);
}

TEST(NonfiniteTest, StepsWithoutAFiniteGradientLeaveTheWeightsAloneAndTrainingGoesOn) {
  plan::JobPlan plan = MakeJob({.ranks = 2, .steps = 2});
  plan.train.optimizer.schedule.warmup_steps = 0;
  plan.train.optimizer.schedule.decay = plan::Decay::kConstant;
  // After one such step no gradient is finite any more. The loss still looks like one: RMSNorm turns the
  // overflowing activations into zeros.
  plan.train.optimizer.schedule.peak = 1e30;
  const JobRun two = RunJob(plan);
  plan.train.steps = 5;
  const JobRun five = RunJob(plan);
  ASSERT_EQ(five.steps.size(), 5u);
  EXPECT_EQ(five.steps[0].nonfinite(), 0);
  for (size_t i = 1; i < five.steps.size(); ++i) {
    EXPECT_GT(five.steps[i].nonfinite(), 0) << five.steps[i].step();
  }
  EXPECT_TRUE(two.arrays == five.arrays);
}

TEST(ProfileTest, EveryRankRecordsTheSameStepsAndNoBitChanges) {
  const plan::JobPlan plan = MakeJob({.ranks = 2, .microbatches_per_rank = 2, .steps = 7});
  const JobRun plain = RunJob(plan);
  const trainer::ProfileSteps asked{.id = 99, .steps = 2, .serialized = true};
  const JobRun profiled = RunJob(plan, {.with_requests = [&asked](std::vector<trainer::RequestBox>& ranks) {
                                   ranks[1].AddProfile(asked);  // rank 0 never learns of it
                                 }});
  ExpectSameBits(plain, profiled);
  for (const int rank : {0, 1}) {
    std::vector<std::tuple<int64_t, bool, bool>> steps;
    for (const ProfiledStep& step : profiled.profiled) {
      EXPECT_EQ(step.id, 99u);
      EXPECT_EQ(step.timeline.program, "train");
      EXPECT_EQ(step.timeline.instructions.size(), plan.stage.train.instructions.size());
      if (step.timeline.rank == rank) {
        steps.emplace_back(step.timeline.step, step.timeline.serialized, step.last);
      }
    }
    EXPECT_EQ(steps, (std::vector<std::tuple<int64_t, bool, bool>>{
                         {3, false, false}, {4, false, false}, {5, true, false}, {6, true, true}}))
        << "rank " << rank;
  }
}

TEST(CollectivesTest, EveryUnitIsGatheredAndReducedAsOftenAsTheProgramSays) {
  JobOptions options{.ranks = 2, .microbatches_per_rank = 2, .steps = 3, .layers = 3};
  const plan::JobPlan plan = MakeJob(options);
  const JobRun run = RunJob(plan);
  std::map<int64_t, int64_t> gathers;
  for (const Collective& collective : run.collectives.at("dp_cp_ag")) {
    EXPECT_EQ(collective.operation, "AllGather");
    ++gathers[collective.elements];
  }
  std::map<int64_t, int64_t> reductions;
  for (const Collective& collective : run.collectives.at("dp_cp")) {
    EXPECT_EQ(collective.operation, "AllToAll");
    ++reductions[collective.elements];
  }
  // Units of one kind are of one size, and the three kinds of different ones.
  const auto shard = [&](size_t unit) { return fsdp::ShardElements(plan.layouts[unit][0], 2); };
  const auto gathered = [&](size_t unit) { return fsdp::GatheredElements(plan.layouts[unit][0], 2); };
  const size_t head = plan.layouts.size() - 1;
  EXPECT_EQ(gathers,
            (std::map<int64_t, int64_t>{{shard(0), 3 * 2}, {shard(1), 3 * 3 * 4}, {shard(head), 3 * 2}}));
  EXPECT_EQ(reductions, (std::map<int64_t, int64_t>{
                            {gathered(0), 3 * 2}, {gathered(1), 3 * 3 * 2}, {gathered(head), 3 * 2}}));
  // The first step's run is `begin`, the update of the last one's communicates nothing.
  const auto in_runs = [&](schedules::Opcode opcode) {
    size_t count = 0;
    for (const auto& [program, runs] : {std::pair(&plan.stage.begin, 1), std::pair(&plan.stage.train, 2)}) {
      count += runs * std::count_if(program->instructions.begin(), program->instructions.end(),
                                    [&](const auto& i) { return i.opcode == opcode; });
    }
    return count;
  };
  EXPECT_EQ(run.collectives.at("dp_cp_ag").size(), in_runs(schedules::Opcode::kUnshard));
  EXPECT_EQ(run.collectives.at("dp_cp").size(), in_runs(schedules::Opcode::kReduceGradients));
}

int64_t ResidentBytes() {
  std::ifstream statm("/proc/self/statm");
  int64_t pages = 0;
  int64_t resident = 0;
  statm >> pages >> resident;
  return resident * 4096;
}

TEST(MemoryTest, TheArenaIsAsLargeAsThePlanSays) {
  for (const int ranks : {1, 2}) {
    for (const int prefetch : {0, 2}) {
      for (const int64_t validate : {0, 2}) {
        const JobOptions options{.ranks = ranks,
                                 .microbatches_per_rank = 2,
                                 .steps = 3,
                                 .layers = 3,
                                 .prefetch = prefetch,
                                 .validate_every_steps = validate,
                                 .validation_batches = 3};
        const plan::JobPlan plan = MakeJob(options);
        const JobRun run = RunJob(plan);
        EXPECT_EQ(run.arena_bytes, std::vector<int64_t>(ranks, plan.stage.arena_bytes))
            << ranks << " ranks, prefetch " << prefetch << ", validation every " << validate;
      }
    }
  }
}

TEST(MemoryTest, IsFlatOverFiveHundredSteps) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "sanitizers keep freed memory";
#endif
  const JobOptions options{.ranks = 2,
                           .microbatches_per_rank = 2,
                           .steps = 500,
                           .layers = 1,
                           .hidden = 16,
                           .inner = 16,
                           .heads = 2,
                           .kv_heads = 1,
                           .sequence_length = 8,
                           .validate_every_steps = 50};
  int64_t after_hundred = 0;
  int64_t after_all = 0;
  RunJob(MakeJob(options), {.keep_steps = false, .on_report = [&](const v1::StepReport& report) {
                              (report.step() == 100 ? after_hundred : after_all) = ResidentBytes();
                            }});
  EXPECT_LE(after_all, after_hundred + (1 << 20));
}

}  // namespace
}  // namespace tandem::parity
