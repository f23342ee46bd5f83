#include "plan/job_plan.h"

#include <gtest/gtest.h>

#include <map>

#include "schedules_v1/checker.h"
#include "schedules_v1/counts.h"
#include "tests/plan/test_job.h"

namespace tandem::plan {
namespace {

TEST(JobPlanTest, PlainStructsHoldWhatTheSpecSays) {
  const JobPlan plan = MakeJobPlan(TestJob());
  EXPECT_EQ(plan.train.name, "small");
  EXPECT_EQ(plan.train.steps, 200);
  EXPECT_EQ(plan.train.seed, 7u);
  EXPECT_EQ(plan.train.ranks, 2);
  EXPECT_EQ(plan.train.microbatches_per_rank, 3);
  EXPECT_EQ(plan.train.optimizer.learning_rate, 1e-3);
  EXPECT_EQ(plan.train.optimizer.warmup_steps, 20);
  EXPECT_EQ(plan.train.optimizer.decay, Decay::kCosine);
  EXPECT_EQ(plan.train.data.train, "/data");
  EXPECT_EQ(plan.batch.sequences, 2);
  EXPECT_EQ(plan.batch.sequence_length, 64);
  EXPECT_EQ(plan.compute, model::ComputeType::kFp32);
  EXPECT_EQ(plan.model.head_dim, 16);
  EXPECT_EQ(MakeJobPlan(TestJob("{ranks: 1}", "{compute: fp64}")).compute, model::ComputeType::kFp64);
}

TEST(JobPlanTest, UnitsLayoutsAndOutlineAgree) {
  const JobPlan plan = MakeJobPlan(TestJob());
  ASSERT_EQ(plan.units.size(), 6u);
  ASSERT_EQ(plan.layouts.size(), 6u);
  ASSERT_EQ(plan.outline_v1.units.size(), 6u);
  for (size_t unit = 0; unit < plan.units.size(); ++unit) {
    EXPECT_EQ(plan.outline_v1.units[unit].name, plan.units[unit].name);
    EXPECT_EQ(plan.outline_v1.units[unit].parts, plan.units[unit].parts);
    EXPECT_EQ(plan.outline_v1.units[unit].elements, plan.layouts[unit].elements);
    ASSERT_EQ(plan.layouts[unit].parameters.size(), plan.units[unit].parameters.size());
    for (size_t i = 0; i < plan.layouts[unit].parameters.size(); ++i) {
      EXPECT_EQ(plan.layouts[unit].parameters[i].name, plan.units[unit].parameters[i].name);
    }
  }
}

TEST(JobPlanTest, ProgramsOfARealModelAreAcceptedAtEveryPrefetchDistance) {
  for (const char* tied : {", tie_word_embeddings: true", ""}) {
    for (const char* prefetch : {"0", "1", "2"}) {
      const JobPlan plan = MakeJobPlan(
          TestJob(std::string("{ranks: 3, fsdp: {prefetch: ") + prefetch + "}}", "{compute: fp64}", tied));
      EXPECT_EQ(schedules_v1::CheckSequence(plan.outline_v1, {&plan.train_program, &plan.validate_program}),
                absl::OkStatus());
      const std::vector<schedules_v1::UnitCounts> counts =
          schedules_v1::CountCollectives(plan.outline_v1, plan.train_program);
      const int m = plan.train.microbatches_per_rank;
      EXPECT_EQ(m, 2);
      EXPECT_EQ(counts[0], (schedules_v1::UnitCounts{plan.model.tie_word_embeddings ? 2 * m : m, m}));
      EXPECT_EQ(counts[1], (schedules_v1::UnitCounts{2 * m, m}));
      EXPECT_EQ(counts.back(), (schedules_v1::UnitCounts{m, m}));
    }
  }
}

TEST(JobPlanTest, SlotsHoldAGatheredUnitAndBothProgramsShareThem) {
  const JobPlan plan = MakeJobPlan(TestJob("{ranks: 3}"));
  EXPECT_EQ(plan.train_program.parameter_slot_bytes[1], fsdp::GatheredElements(plan.layouts[1], 3) * 4);
  EXPECT_EQ(plan.train_program.parameter_slot_bytes, plan.validate_program.parameter_slot_bytes);
  EXPECT_EQ(plan.train_program.parameter_slots, plan.validate_program.parameter_slots);
  EXPECT_EQ(plan.train_program.gradient_slots, plan.validate_program.gradient_slots);
}

TEST(JobPlanTest, DigestsNameTheProgramAndTheLayout) {
  const JobPlan plan = MakeJobPlan(TestJob());
  EXPECT_EQ(plan.program_digest.size(), 64u);
  EXPECT_EQ(plan.program_digest, MakeJobPlan(TestJob()).program_digest);
  EXPECT_NE(plan.program_digest, MakeJobPlan(TestJob("{ranks: 2, fsdp: {prefetch: 2}}")).program_digest);
  EXPECT_EQ(plan.layout_digest, MakeJobPlan(TestJob("{ranks: 2, fsdp: {prefetch: 2}}")).layout_digest);
  EXPECT_EQ(plan.layout_digest, MakeJobPlan(TestJob("{ranks: 3}")).layout_digest) << "layouts know no ranks";
  EXPECT_NE(
      plan.layout_digest,
      MakeJobPlan(TestJob("{ranks: 2}", "{compute: fp32}", ", tie_word_embeddings: true")).layout_digest);
}

TEST(JobPlanTest, WhatValidateRefusesIsNotPlannedSilently) {
  v1::JobSpec job = TestJob();
  job.mutable_training()->set_global_batch_size(13);
  EXPECT_THROW(MakeJobPlan(job), std::logic_error);
  job = TestJob();
  job.mutable_precision()->set_compute(v1::COMPUTE_TYPE_BF16);
  EXPECT_THROW(MakeJobPlan(job), std::logic_error);
}

TEST(JobPlanTest, ValidationThatNeverRunsHasNoProgram) {
  v1::JobSpec never = TestJob();
  never.mutable_training()->set_validate_every_steps(0);
  v1::JobSpec nothing = TestJob();
  nothing.mutable_training()->set_validation_batches(0);
  for (const v1::JobSpec& job : {never, nothing}) {
    const JobPlan plan = MakeJobPlan(job);
    EXPECT_TRUE(plan.validate_program.instructions.empty());
    EXPECT_FALSE(plan.train_program.instructions.empty());
  }
}

TEST(JobPlanTest, TheMicrobatchesOfAValidationAreSharedAmongTheRanks) {
  v1::JobSpec job = TestJob();
  job.mutable_parallelism()->set_ranks(4);
  job.mutable_training()->set_global_batch_size(16);
  for (const auto& [batches, rounds] : std::map<int, int>{{1, 1}, {4, 1}, {5, 2}, {16, 4}}) {
    job.mutable_training()->set_validation_batches(batches);
    EXPECT_EQ(MakeJobPlan(job).validate_program.num_microbatches, rounds) << batches;
  }
}

}  // namespace
}  // namespace tandem::plan
