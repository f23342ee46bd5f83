// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <fstream>
#include <string>
#include <tuple>
#include <vector>

#include "tests/parity/expect_same.h"
#include "tests/parity/job.h"
#include "tests/parity/run.h"

namespace tandem::parity {
namespace {

// One layout, one number of ranks: how the work is arranged changes no bit.

TEST(ScheduleTest, ValidationBetweenStepsChangesNoTrainingBit) {
  JobOptions options{.ranks = 2, .microbatches_per_rank = 2, .steps = 6};
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

TEST(ValidationTest, LossIsTheSameOnAnyRanks) {
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

TEST(ProfileTest, EveryRankRecordsTheSameStepsAndKeepsBits) {
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

int64_t ResidentBytes() {
  std::ifstream statm("/proc/self/statm");
  int64_t pages = 0;
  int64_t resident = 0;
  statm >> pages >> resident;
  return resident * 4096;
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
