// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "checkpoint/saved_step.h"
#include "fsdp/optimizer.h"
#include "fsdp/shard_kernels.h"
#include "platform/files.h"
#include "tests/parity/changed_loss_gradient.h"
#include "tests/parity/expect_close.h"
#include "tests/parity/expect_same.h"
#include "tests/parity/fakes.h"
#include "tests/parity/job.h"
#include "tests/parity/resume_job.h"
#include "tests/parity/run.h"
#include "trainer/backend.h"
#include "trainer/failure.h"

namespace tandem::parity {
namespace {

constexpr int kMicrobatchesOfAStep = 6;  // of all ranks, in a step
constexpr int64_t kBadStep = 3;
constexpr int64_t kBadElement = 70;  // of every layer's buffer: one rank owns it

struct Place {
  int rounds = 1;  // of a step
  int64_t element = kBadElement;
  int fewest_parameters = 3;  // of its units: the embedding and the head have two or fewer
  int most_parameters = 100;
};

// The CPU's loops; the accumulated gradient of kBadStep has an infinity at a place, as the contribution of
// rank 0 would leave it.
class InfiniteGradient final : public fsdp::UnitKernels {
 public:
  InfiniteGradient(fsdp::ShardGeometry geometry, Place place)
      : geometry_(geometry), place_(place), inner_(fsdp::CpuShardKernels().MakeUnit(std::move(geometry))) {}

  void Fold(const void* staging, void* gradients, bool add, fsdp::UnitNormTerms* norm_terms) const override {
    const int64_t step = folds_++ / place_.rounds + 1;
    for (const fsdp::Piece& piece : geometry_.pieces) {
      if (step == kBadStep && geometry_.num_parameters >= place_.fewest_parameters &&
          geometry_.num_parameters <= place_.most_parameters && piece.range.begin <= place_.element &&
          place_.element < piece.range.end) {
        static_cast<float*>(const_cast<void*>(staging))[place_.element - geometry_.begin] =
            std::numeric_limits<float>::infinity();
      }
    }
    inner_->Fold(staging, gradients, add, norm_terms);
  }
  void OptimizerStep(const fsdp::OptimizerArrays& arrays, const fsdp::AdamWConfig& config) const override {
    inner_->OptimizerStep(arrays, config);
  }

 private:
  const fsdp::ShardGeometry geometry_;
  const Place place_;
  const std::unique_ptr<fsdp::UnitKernels> inner_;
  mutable int64_t folds_ = 0;  // of one unit, on one stream
};

using InfiniteGradientBackend = WithUnits<InfiniteGradient, Place>;

std::unique_ptr<trainer::Backend> InfiniteLossGradient(int rounds, bool has_it, int64_t bad_step = kBadStep) {
  return std::make_unique<ChangedLossGradientBackend>(
      rounds, [=](int64_t step) { return has_it && step == bad_step; },
      std::numeric_limits<double>::infinity());
}

// In a job whose ranks hold the same gradient, or sum it over two axes, each element counts once.
TEST(NonfiniteGradientTest, EveryStrategySkipsItAsOneRank) {
  constexpr int kRanks = 4;
  constexpr int kMicrobatches = 8;
  const auto job = [](const std::string& strategy, int ranks) {
    return MakeJob({.strategy = strategy,
                    .ranks = ranks,
                    .replicas = ReplicasOf(strategy),
                    .microbatches_per_rank = kMicrobatches / ranks,
                    .steps = kBadStep + 1,
                    .layers = 1,
                    .fp64 = true});
  };
  const auto run = [](const plan::JobPlan& plan) {
    return RunJob(plan, {.make_backend = [&plan](int rank) -> std::unique_ptr<trainer::Backend> {
                    return InfiniteLossGradient(plan.train.microbatches_per_rank, /*has_it=*/rank == 0);
                  }});
  };
  const JobRun one = run(job("zero3", 1));
  EXPECT_GT(one.steps[kBadStep - 1].nonfinite(), 0);
  EXPECT_EQ(one.steps[kBadStep].nonfinite(), 0);
  for (const char* strategy : {"replicate", "zero1", "zero2", "zero3", "hsdp", "hfsdp"}) {
    SCOPED_TRACE(strategy);
    const plan::JobPlan plan = job(strategy, kRanks);
    const JobRun shared = run(plan);
    ExpectClose(plan, one, shared, kFp64);
    for (const double update : shared.steps[kBadStep - 1].norms().update()) {
      EXPECT_EQ(update, 0);
    }
  }
}

JobRun RunOn(int ranks, int64_t steps, bool stop = false) {
  const int rounds = kMicrobatchesOfAStep / ranks;
  plan::JobPlan plan = MakeJob(
      {.ranks = ranks, .microbatches_per_rank = rounds, .steps = 6, .layers = 1, .stop_on_nonfinite = stop});
  plan.train.optimizer.schedule.decay =
      v1::DECAY_CONSTANT;  // so that a shorter job has the same learning rates
  plan.train.steps = steps;
  return RunJob(plan, {.make_backend = [rounds](int) -> std::unique_ptr<trainer::Backend> {
                  return std::make_unique<InfiniteGradientBackend>(Place{.rounds = rounds});
                }});
}

TEST(NonfiniteGradientTest, OfOneRankIsSkippedByAllRanks) {
  for (const int ranks : {1, 3}) {
    SCOPED_TRACE(ranks);
    const JobRun before = RunOn(ranks, kBadStep - 1);
    const JobRun at = RunOn(ranks, kBadStep);
    EXPECT_TRUE(before.arrays == at.arrays) << "weights or moments changed in the step that was skipped";
    EXPECT_EQ(at.steps.back().nonfinite(), 1);
    EXPECT_TRUE(std::isnan(at.steps.back().grad_norm()));
    EXPECT_EQ(before.steps.back().nonfinite(), 0);
    for (const double update : at.steps.back().norms().update()) {
      EXPECT_EQ(update, 0);
    }
  }
}

// kBadElement is in the second parameter of the layer, and with three ranks in the first one's shard.
constexpr char kPlace[] = "model.layers.0.self_attn.q_proj.weight";

TEST(NonfiniteGradientTest, TheFirstIsReportedWithParameterAndRank) {
  EXPECT_TRUE(RunOn(3, kBadStep - 1).nonfinite.empty());
  const JobRun run = RunOn(3, 6);
  ASSERT_EQ(run.nonfinite.size(), 1u);
  EXPECT_EQ(run.nonfinite[0].first, kBadStep);
  EXPECT_EQ(run.nonfinite[0].second, std::string("1 element of the gradients of step 3 is not finite: ") +
                                         kPlace + " (held by rank 0); the step was not applied");
  // The learning rate makes every later step as bad.
  plan::JobPlan plan = MakeJob({.steps = 2});
  plan.train.optimizer.schedule.warmup_steps = 0;
  plan.train.optimizer.schedule.decay = v1::DECAY_CONSTANT;
  plan.train.optimizer.schedule.peak = 1e30;
  plan.train.steps = 5;
  const JobRun bad = RunJob(plan);
  EXPECT_GT(bad.steps[2].nonfinite(), 0);
  ASSERT_EQ(bad.nonfinite.size(), 1u);
  EXPECT_EQ(bad.nonfinite[0].first, 2);
}

// Of the ranks that share experts only one has the expert, and no other has a parameter of its name.
TEST(NonfiniteGradientTest, OfAnExpertIsReportedWithItsRank) {
  const auto run = [](int64_t steps) {
    plan::JobPlan plan = MakeJob({.ranks = 4,
                                  .expert_parallel = 2,
                                  .microbatches_per_rank = 2,
                                  .steps = 6,
                                  .layers = 1,
                                  .model_type = "mixtral",
                                  .num_experts = 4,
                                  .overlap = true});
    plan.train.optimizer.schedule.decay = v1::DECAY_CONSTANT;
    plan.train.steps = steps;
    // The second half of experts 2 and 3, of six matrices, which ranks 1 and 3 share.
    const Place place{
        .rounds = 2, .element = 3 * 48 * 32 + kBadElement, .fewest_parameters = 6, .most_parameters = 6};
    return RunJob(plan, {.make_backend = [place](int rank) -> std::unique_ptr<trainer::Backend> {
                    return rank == 3 ? std::make_unique<InfiniteGradientBackend>(place)
                                     : trainer::MakeCpuBackend();
                  }});
  };
  const JobRun at = run(kBadStep);
  EXPECT_TRUE(run(kBadStep - 1).arrays == at.arrays) << "weights or moments changed in the step";
  ASSERT_EQ(at.nonfinite.size(), 1u);
  EXPECT_EQ(at.nonfinite[0].second,
            "1 element of the gradients of step 3 is not finite: "
            "model.layers.0.block_sparse_moe.experts.3.w3.weight (held by rank 3); the step was not applied");
}

TEST(NonfiniteGradientTest, CanEndTheJobOnEveryRank) {
  for (const int ranks : {1, 3}) {
    for (const int64_t steps : {kBadStep, int64_t{6}}) {  // the last step, and one with more to come
      SCOPED_TRACE(testing::Message() << ranks << " ranks, " << steps << " steps");
      try {
        RunOn(ranks, steps, /*stop=*/true);
        FAIL() << "went on";
      } catch (const trainer::NumericError& error) {
        EXPECT_EQ(error.step, kBadStep);
        EXPECT_EQ(std::string(error.what()),
                  std::string("gradients of step 3 are not finite: ") + kPlace +
                      " (held by rank 0); the step was not applied (training.nonfinite_gradients: stop)");
      }
    }
  }
}

// The run that would save the bad step is in flight when that is known.
TEST(NonfiniteGradientTest, AStopSavesNoSkippedStep) {
  const TemporaryFolder folder;
  const int rounds = kMicrobatchesOfAStep / 2;
  const plan::JobPlan plan = MakeJob({.ranks = 2,
                                      .microbatches_per_rank = rounds,
                                      .steps = 6,
                                      .layers = 1,
                                      .stop_on_nonfinite = true,
                                      .checkpoint_directory = folder.path(),
                                      .checkpoint_every_steps = kBadStep});
  const RunOptions run{.make_backend = [rounds](int) -> std::unique_ptr<trainer::Backend> {
    return std::make_unique<InfiniteGradientBackend>(Place{.rounds = rounds});
  }};
  EXPECT_THROW(RunJob(plan, run), trainer::NumericError);
  EXPECT_FALSE(std::filesystem::exists(folder.path() + "/step-3"));
}

// Adam's first update moves an element by the learning rate, in whichever step it is applied.
TEST(NonfiniteGradientTest, SkippedStepsAreNoUpdatesOfAdam) {
  const TemporaryFolder folder;
  for (const int ranks : {1, 2}) {
    SCOPED_TRACE(ranks);
    const auto run = [&](int64_t steps, int64_t bad_step, const std::string& directory) {
      plan::JobPlan plan = MakeJob({.ranks = ranks,
                                    .steps = 3,
                                    .warmup_steps = 0,
                                    .learning_rate = 1e-3,
                                    .clip = 0,
                                    .fp64 = true,
                                    .checkpoint_directory = directory,
                                    .resume = directory.empty() ? "" : "newest"});
      plan.train.optimizer.schedule.decay = v1::DECAY_CONSTANT;
      plan.train.optimizer.weight_decay = 0;
      plan.train.steps = steps;
      return RunJob(plan, {.make_backend = [bad_step](int rank) -> std::unique_ptr<trainer::Backend> {
                      return InfiniteLossGradient(1, rank == 0, bad_step);
                    }});
    };
    const JobRun whole = run(3, /*bad_step=*/1, "");
    EXPECT_EQ(whole.steps[1].scalars().at("skipped_steps"), 1);
    const auto& updates = whole.steps[1].norms().update_max_abs();
    EXPECT_NEAR(*std::max_element(updates.begin(), updates.end()), 1e-3, 1e-6);

    const std::string directory = absl::StrCat(folder.path(), "/", ranks);
    run(2, /*bad_step=*/1, directory);
    const JobRun resumed = run(3, /*bad_step=*/1000, directory);
    EXPECT_EQ(resumed.resumed_step, 2);
    EXPECT_TRUE(whole.arrays == resumed.arrays) << "the skipped step was forgotten";
  }
}

// The manifest of a step that is written beside training is that of the same step, written while a job of so
// many steps stands still.
TEST(NonfiniteGradientTest, AnAsynchronousManifestHasTheSkippedStep) {
  checkpoint::Info infos[2];
  std::string contents[2];
  for (const bool beside : {false, true}) {
    const TemporaryFolder folder;
    JobOptions options{.ranks = 2,
                       .steps = beside ? 6 : 4,
                       .warmup_steps = 0,
                       .fp64 = true,
                       .checkpoint_directory = folder.path(),
                       .checkpoint_every_steps = 4};
    options.decays = false;
    RunJob(MakeJob(options), {.make_backend = [](int rank) -> std::unique_ptr<trainer::Backend> {
             return InfiniteLossGradient(1, rank == 0);
           }});
    const std::string step = folder.path() + "/step-4";
    infos[beside] = checkpoint::SavedStep::Open(platform::SystemFiles(), step).value().manifest().info;
    contents[beside] = Content(step + "/rank-00001.safetensors");
  }
  EXPECT_EQ(infos[true].skipped_steps, 1);
  EXPECT_EQ(infos[true].skipped_steps, infos[false].skipped_steps);
  EXPECT_EQ(infos[true].data, infos[false].data);
  EXPECT_EQ(infos[true].norms.size(), 3u);
  EXPECT_EQ(infos[true].norms, infos[false].norms);
  EXPECT_FALSE(contents[true].empty());
  EXPECT_TRUE(contents[true] == contents[false]);
}

TEST(NonfiniteGradientTest, AJobThatChangedNoWeightFails) {
  for (const int ranks : {1, 2}) {
    SCOPED_TRACE(ranks);
    plan::JobPlan plan = MakeJob({.ranks = ranks, .steps = 1, .warmup_steps = 0, .fp64 = true});
    try {
      RunJob(plan, {.make_backend = [](int rank) -> std::unique_ptr<trainer::Backend> {
               return InfiniteLossGradient(1, rank == 0, /*bad_step=*/1);
             }});
      FAIL() << "succeeded";
    } catch (const trainer::NumericError& error) {
      EXPECT_EQ(error.step, 1);
      EXPECT_THAT(
          error.what(),
          testing::StartsWith("no step from 1 to 1 changed a weight, because no step had finite gradients; "
                              "not finite in step 1: "));
    }
  }
}

TEST(NonfiniteGradientTest, TrainingContinuesWithTheBitsOfOneRank) {
  const JobRun one = RunOn(1, 6);
  ASSERT_EQ(one.steps.size(), 6u);
  EXPECT_EQ(one.steps[kBadStep].nonfinite(), 0);
  EXPECT_GT(one.steps[kBadStep].norms().update(0), 0);
  for (const int ranks : {2, 6}) {
    SCOPED_TRACE(ranks);
    ExpectSameBits(one, RunOn(ranks, 6));
  }
}

}  // namespace
}  // namespace tandem::parity
