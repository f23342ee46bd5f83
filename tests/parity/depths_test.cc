// SPDX-License-Identifier: Apache-2.0
// Layers that predict further tokens (model/depths.h), in whole jobs.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/parity/expect_same.h"
#include "tests/parity/job.h"
#include "tests/parity/run.h"

namespace tandem::parity {
namespace {

JobOptions Predicting(const std::string& pattern) {
  JobOptions options = SparseJob();
  options.model_type = "hybrid";
  options.pattern = pattern;
  options.num_experts = pattern.find('E') == std::string::npos ? 0 : 4;
  options.steps = 3;
  return options;
}

TEST(DepthsTest, RanksAndAccumulationDoNotChangeTheBits) {
  for (const bool tied : {false, true}) {
    JobOptions options = Predicting("[M*-]M/*-/*-");
    options.tied = tied;
    ExpectSameBitsOnRanks(options, {2, 3});
  }
}

TEST(DepthsTest, EveryStrategyHasTheSequentialSchedulesBits) {
  for (const char* strategy : {"replicate", "zero1", "hsdp", "hfsdp"}) {
    SCOPED_TRACE(strategy);
    JobOptions options = Predicting("M*/*-/*-");
    options.strategy = strategy;
    options.replicas = ReplicasOf(strategy);
    options.ranks = 2 * options.replicas;
    options.microbatches_per_rank = 3;
    options.tied = options.replicas > 1;
    ExpectSameBitsOfSchedules(options);
  }
}

// So loss and validation are of the next token alone, whatever the depths make.
TEST(DepthsTest, DetachedDepthsChangeNoBitOfTheModel) {
  JobOptions options = Predicting("M*-");
  options.clip = 0;
  options.microbatches_per_rank = 2;
  options.validate_every_steps = 1;
  const JobRun without = RunJob(MakeJob(options));
  options.pattern = "M*-/*-/*-";
  options.mtp_detach = true;
  const JobRun with = RunJob(MakeJob(options));
  ASSERT_EQ(with.steps.size(), without.steps.size());
  for (size_t i = 0; i < with.steps.size(); ++i) {
    EXPECT_EQ(with.steps[i].loss(), without.steps[i].loss());
    EXPECT_EQ(ValidationLossOf(with.steps[i]), ValidationLossOf(without.steps[i]));
    EXPECT_NE(with.steps[i].scalars().at("mtp_loss/1"), with.steps[i].loss());
    EXPECT_NE(with.steps[i].scalars().at("mtp_loss/1"), with.steps[i].scalars().at("mtp_loss/2"));
  }
  EXPECT_EQ(with.arrays.at("layers.0/weights"), without.arrays.at("layers.0/weights"));
}

TEST(DepthsTest, RecomputationAndGraphsChangeNoBit) {
  JobOptions options = Predicting("M[*E]/*E");
  options.ranks = 2;
  options.expert_parallel = 2;
  options.microbatches_per_rank = 3;
  options.overlap = true;
  const JobRun kept = RunJob(MakeJob(options));
  options.recompute = "layer";
  ExpectSameBits(kept, RunJob(MakeJob(options)));
  options.recompute = "off";
  options.graphs = "attention,router";
  ExpectSameBits(kept, RunJob(MakeJob(options)));
}

// A router in a depth is a sparse layer like the others: its own row, and one more in the mean.
TEST(DepthsTest, RoutersOfDepthsAreReportedAsLastLayers) {
  const JobRun run = RunJob(MakeJob(Predicting("[*E]M/*E/*E")));
  const v1::StepReport& step = run.steps.back();
  ASSERT_EQ(step.norms().experts_size(), 3);
  double balance = 0;
  for (const v1::ExpertLoad& load : step.norms().experts()) {
    balance += load.balance_loss() / 3;
  }
  EXPECT_EQ(step.norms().experts(0).layer(), 0);
  EXPECT_EQ(step.norms().experts(1).layer(), 2);
  EXPECT_EQ(step.norms().experts(2).layer(), 3);
  EXPECT_NEAR(step.scalars().at("moe_balance_loss"), balance, 1e-12);
}

TEST(DepthsTest, AJobResumesBitwiseOnOtherRanks) {
  JobOptions options = Predicting("M*/M-/M-");
  options.steps = 5;
  options.ranks = 2;
  options.microbatches_per_rank = 2;
  ExpectSameBitsAfter(2, options, {SharedAmong(4, options)});
}

}  // namespace
}  // namespace tandem::parity
