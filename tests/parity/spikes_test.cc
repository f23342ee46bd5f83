// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "proto/reasons.h"
#include "tests/parity/changed_loss_gradient.h"
#include "tests/parity/expect_same.h"
#include "tests/parity/job.h"
#include "tests/parity/run.h"
#include "trainer/failure.h"

namespace tandem::parity {
namespace {

// The first step that a job may skip is 129.

using IsLoud = std::function<bool(int64_t step)>;

IsLoud LoudAt(int64_t loud_step) {
  return [=](int64_t step) { return step == loud_step; };
}

JobOptions SpikeOptions(int ranks, int64_t steps) {
  return {.ranks = ranks,
          .microbatches_per_rank = 2 / ranks,
          .steps = steps,
          .layers = 1,
          .hidden = 16,
          .inner = 24,
          .heads = 2,
          .kv_heads = 1,
          .sequence_length = 8,
          .learning_rate = 1e-4,  // so low that norms stay alike
          .decays = false,
          .skips_spikes = true,
          .fp64 = true};
}

// first_step: that this run computes. gradient, added_loss: of the first microbatch of a loud step.
JobRun RunChanged(const JobOptions& options, const IsLoud& is_loud, int64_t first_step,
                  std::optional<double> gradient, double added_loss) {
  return RunJob(MakeJob(options), {.make_backend = [&](int rank) -> std::unique_ptr<trainer::Backend> {
                  return std::make_unique<ChangedLossGradientBackend>(
                      options.microbatches_per_rank,
                      [=](int64_t step) { return rank == 0 && is_loud(first_step + step - 1); }, gradient,
                      added_loss);
                }});
}

JobRun RunLoud(const JobOptions& options, const IsLoud& is_loud, int64_t first_step = 1) {
  return RunChanged(options, is_loud, first_step, 50.0, 0);
}

TEST(SpikesTest, AllRanksSkipOneAndChangeNothing) {
  JobRun one;
  for (const int ranks : {1, 2}) {
    SCOPED_TRACE(ranks);
    const JobRun before = RunLoud(SpikeOptions(ranks, 129), LoudAt(130));
    EXPECT_TRUE(before.spikes.empty());
    const JobRun at = RunLoud(SpikeOptions(ranks, 130), LoudAt(130));
    EXPECT_TRUE(before.arrays == at.arrays) << "weights or moments changed in the step that was skipped";
    const v1::StepReport& step = at.steps.back();
    EXPECT_EQ(step.nonfinite(), 0);
    EXPECT_EQ(step.scalars().at("skipped_steps"), 1);
    EXPECT_GT(step.grad_norm(), step.scalars().at("spike_limit"));
    for (const double update : step.norms().update()) {
      EXPECT_EQ(update, 0);
    }
    ASSERT_EQ(at.spikes.size(), 1u);
    EXPECT_EQ(at.spikes[0].first, 130);
    EXPECT_THAT(at.spikes[0].second,
                testing::MatchesRegex(
                    "the gradient norm of step 130 is [0-9.]+, a spike: the norms of the steps "
                    "before it set the limit to [0-9.]+; that of [a-z0-9._]+ is [0-9.]+; the step was "
                    "not applied"));
    EXPECT_TRUE(at.nonfinite.empty());
    if (ranks == 1) {
      one = at;
    } else {
      ExpectSameBits(one, at);
    }
  }
}

TEST(SpikesTest, EarlyOnesAndMereWarningsAreApplied) {
  for (const bool skips : {true, false}) {
    SCOPED_TRACE(skips);
    JobOptions options = SpikeOptions(2, 20);
    options.skips_spikes = skips;
    const JobRun quiet = RunLoud(options, LoudAt(17));  // of which 15 norms say nothing
    EXPECT_TRUE(quiet.spikes.empty());
    EXPECT_FALSE(quiet.steps[16].scalars().contains("spike_limit"));
    const JobRun loud = RunLoud(options, LoudAt(18));
    ASSERT_EQ(loud.spikes.size(), 1u);
    EXPECT_EQ(loud.spikes[0].first, 18);
    EXPECT_EQ(loud.spikes[0].second.ends_with("; steps as early as this one are applied all the same"),
              skips);
    EXPECT_TRUE(loud.steps[17].scalars().contains("spike_limit"));
    EXPECT_FALSE(loud.steps.back().scalars().contains("skipped_steps"));
    EXPECT_FALSE(loud.steps.back().scalars().contains("spike_limit"));
  }
}

TEST(SpikesTest, AResumedJobDecidesAsTheOneBefore) {
  const TemporaryFolder folder;
  JobOptions options = SpikeOptions(2, 136);
  options.checkpoint_directory = folder.path();
  options.checkpoint_every_steps = 66;
  const JobRun whole = RunLoud(options, LoudAt(133));
  EXPECT_EQ(whole.spikes.size(), 1u);
  for (const int64_t step : {66, 132}) {  // early, and just before it
    SCOPED_TRACE(step);
    const TemporaryFolder other;
    options.checkpoint_directory = other.path();
    options.resume = absl::StrCat(folder.path(), "/step-", step);
    const JobRun again = RunLoud(options, LoudAt(133), step + 1);
    EXPECT_EQ(again.spikes, whole.spikes);
    ExpectSameBits(Tail(whole, static_cast<size_t>(step) + 1), again);
    EXPECT_EQ(again.steps.at(132 - step).scalars().at("spike_limit"),
              whole.steps.at(132).scalars().at("spike_limit"));
  }
}

TEST(SpikesTest, TenSkipsInARowEndTheJob) {
  for (const int ranks : {1, 2}) {
    SCOPED_TRACE(ranks);
    EXPECT_EQ(RunLoud(SpikeOptions(ranks, 138), [](int64_t step) { return step >= 130; }).spikes.size(), 9u);
    try {
      RunLoud(SpikeOptions(ranks, 150), [](int64_t step) { return step >= 130; });
      FAIL() << "went on";
    } catch (const trainer::NumericError& error) {
      EXPECT_EQ(error.step, 139);
      EXPECT_EQ(error.reason, proto::ReasonCode("GradientSpike"));
      EXPECT_EQ(std::string(error.what()),
                "10 steps in a row up to 139 were not applied, the last one because its gradient norm is a "
                "spike (training.spikes: skip)");
    }
  }
}

// On two ranks, of which one has the loud microbatch.
TEST(LossSpikesTest, OneIsAnEventAndTheStepApplies) {
  JobOptions options = SpikeOptions(2, 136);
  const JobRun quiet = RunChanged(options, LoudAt(133), 1, std::nullopt, 0);
  const JobRun loud = RunChanged(options, LoudAt(133), 1, std::nullopt, 8);
  EXPECT_TRUE(quiet.loss_spikes.empty());
  EXPECT_TRUE(loud.spikes.empty());
  EXPECT_TRUE(quiet.arrays == loud.arrays);
  EXPECT_FALSE(loud.steps.back().scalars().contains("skipped_steps"));
  ASSERT_EQ(loud.loss_spikes.size(), 1u);
  EXPECT_EQ(loud.loss_spikes[0].first, 133);
  EXPECT_THAT(loud.loss_spikes[0].second,
              testing::MatchesRegex("the loss of step 133 is [0-9.]+, a spike: [0-9.]+ standard deviations "
                                    "above the mean of the losses before it, [0-9.]+"));
  for (const v1::StepReport& step : loud.steps) {
    EXPECT_EQ(step.scalars().contains("loss_spike_limit"), step.step() == 133);
  }
  EXPECT_GT(loud.steps.at(132).loss(), loud.steps.at(132).scalars().at("loss_spike_limit"));
}

TEST(LossSpikesTest, FewLossesGiveNoEventNonfiniteOnesAnother) {
  EXPECT_TRUE(RunChanged(SpikeOptions(1, 17), LoudAt(16), 1, std::nullopt, 8).loss_spikes.empty());
  EXPECT_EQ(RunChanged(SpikeOptions(1, 17), LoudAt(17), 1, std::nullopt, 8).loss_spikes.size(), 1u);
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const double loss : {nan, 8.0}) {
    const JobRun run = RunChanged(SpikeOptions(1, 20), LoudAt(18), 1, nan, loss);
    EXPECT_TRUE(run.loss_spikes.empty());
    EXPECT_EQ(run.nonfinite.size(), 1u);
  }
}

// The losses before its checkpoint are those of metrics.jsonl.
TEST(LossSpikesTest, AResumedJobJudgesAsTheOneBefore) {
  const TemporaryFolder folder;
  JobOptions options = SpikeOptions(2, 40);
  options.checkpoint_directory = folder.path();
  options.checkpoint_every_steps = 36;
  const JobRun whole = RunChanged(options, LoudAt(38), 1, std::nullopt, 8);
  ASSERT_EQ(whole.loss_spikes.size(), 1u);
  std::filesystem::remove_all(folder.path() + "/step-40");
  options.resume = "newest";
  const JobRun again = RunChanged(options, LoudAt(38), 37, std::nullopt, 8);
  EXPECT_EQ(again.resumed_step, 36);
  EXPECT_EQ(again.loss_spikes, whole.loss_spikes);
  EXPECT_EQ(again.steps.at(1).scalars().at("loss_spike_limit"),
            whole.steps.at(37).scalars().at("loss_spike_limit"));
}

}  // namespace
}  // namespace tandem::parity
