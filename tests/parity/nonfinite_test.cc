// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <memory>
#include <utility>

#include "fsdp/optimizer.h"
#include "fsdp/shard_kernels.h"
#include "tests/parity/expect_same.h"
#include "tests/parity/job.h"
#include "tests/parity/run.h"
#include "tests/trainer/forwarding_backend.h"
#include "trainer/backend.h"
#include "trainer/failure.h"

namespace tandem::parity {
namespace {

constexpr int kMicrobatchesOfAStep = 6;  // of all ranks, in a step
constexpr int64_t kBadStep = 3;
constexpr int64_t kBadElement = 70;  // of every layer's buffer: one rank owns it

struct Place {
  int64_t element = kBadElement;
  int fewest_parameters = 3;  // of its units: the embedding and the head have two or fewer
  int most_parameters = 100;
};

// The CPU's loops; the accumulated gradient of kBadStep has an infinity at a place, as the contribution of
// rank 0 would leave it.
class InfiniteGradient final : public fsdp::UnitKernels {
 public:
  InfiniteGradient(fsdp::ShardGeometry geometry, int rounds, Place place)
      : geometry_(geometry),
        rounds_(rounds),
        place_(place),
        inner_(fsdp::CpuShardKernels().MakeUnit(std::move(geometry))) {}

  void Fold(const void* staging, void* gradients, bool add, fsdp::UnitNormTerms* norm_terms) const override {
    const int64_t step = folds_++ / rounds_ + 1;
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
  const int rounds_;
  const Place place_;
  const std::unique_ptr<fsdp::UnitKernels> inner_;
  mutable int64_t folds_ = 0;  // of one unit, on one stream
};

class InfiniteGradientKernels final : public fsdp::ShardKernels {
 public:
  InfiniteGradientKernels(int rounds, Place place) : rounds_(rounds), place_(place) {}

  void Initialize(uint64_t seed, const fsdp::Parameter& parameter, const fsdp::ParameterInit& init,
                  fsdp::Range part, bool fp64, void* values) const override {
    fsdp::CpuShardKernels().Initialize(seed, parameter, init, part, fp64, values);
  }
  std::unique_ptr<fsdp::UnitKernels> MakeUnit(fsdp::ShardGeometry geometry) const override {
    return std::make_unique<InfiniteGradient>(std::move(geometry), rounds_, place_);
  }
  std::unique_ptr<fsdp::NormKernels> MakeNorm(std::vector<const fsdp::UnitNormTerms*> units) const override {
    return fsdp::CpuShardKernels().MakeNorm(std::move(units));
  }

 private:
  const int rounds_;
  const Place place_;
};

class InfiniteGradientBackend final : public trainer::ForwardingBackend {
 public:
  explicit InfiniteGradientBackend(int rounds, Place place = {})
      : ForwardingBackend(trainer::MakeCpuBackend()), kernels_(rounds, place) {}

  const fsdp::ShardKernels& shard_kernels() const override { return kernels_; }

 private:
  const InfiniteGradientKernels kernels_;
};

JobRun RunOn(int ranks, int64_t steps, bool stop = false) {
  const int rounds = kMicrobatchesOfAStep / ranks;
  plan::JobPlan plan = MakeJob(
      {.ranks = ranks, .microbatches_per_rank = rounds, .steps = 6, .layers = 1, .stop_on_nonfinite = stop});
  plan.train.optimizer.decay = plan::Decay::kConstant;  // so that a shorter job has the same learning rates
  plan.train.steps = steps;
  return RunJob(plan, {.make_backend = [rounds](int) -> std::unique_ptr<trainer::Backend> {
                  return std::make_unique<InfiniteGradientBackend>(rounds);
                }});
}

TEST(NonfiniteGradientTest, OfOneRankIsSkippedByAllAndChangesNothingButTheCount) {
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

TEST(NonfiniteGradientTest, TheFirstStepIsReportedOnceWithParameterAndRank) {
  EXPECT_TRUE(RunOn(3, kBadStep - 1).nonfinite.empty());
  const JobRun run = RunOn(3, 6);
  ASSERT_EQ(run.nonfinite.size(), 1u);
  EXPECT_EQ(run.nonfinite[0].first, kBadStep);
  EXPECT_EQ(run.nonfinite[0].second, std::string("1 element of the gradients of step 3 is not finite: ") +
                                         kPlace + " (held by rank 0); the step was not applied");
  // The learning rate makes every later step as bad.
  plan::JobPlan plan = MakeJob({.steps = 2});
  plan.train.optimizer.warmup_steps = 0;
  plan.train.optimizer.decay = plan::Decay::kConstant;
  plan.train.optimizer.learning_rate = 1e30;
  plan.train.steps = 5;
  const JobRun bad = RunJob(plan);
  EXPECT_GT(bad.steps[2].nonfinite(), 0);
  ASSERT_EQ(bad.nonfinite.size(), 1u);
  EXPECT_EQ(bad.nonfinite[0].first, 2);
}

// Of ranks that share experts only one has it, and nobody else a parameter of its name.
TEST(NonfiniteGradientTest, OfAnExpertTheRankThatHasItIsNamedAndNothingChanges) {
  const auto run = [](int64_t steps) {
    plan::JobPlan plan = MakeJob({.ranks = 4,
                                  .expert_parallel = 2,
                                  .microbatches_per_rank = 2,
                                  .steps = 6,
                                  .layers = 1,
                                  .model_type = "mixtral",
                                  .num_experts = 4,
                                  .overlap = true});
    plan.train.optimizer.decay = plan::Decay::kConstant;
    plan.train.steps = steps;
    // The second half of experts 2 and 3, of six matrices, which ranks 1 and 3 share.
    const Place place{.element = 3 * 48 * 32 + kBadElement, .fewest_parameters = 6, .most_parameters = 6};
    return RunJob(plan, {.make_backend = [place](int rank) -> std::unique_ptr<trainer::Backend> {
                    return rank == 3 ? std::make_unique<InfiniteGradientBackend>(/*rounds=*/2, place)
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

TEST(NonfiniteGradientTest, WhereTheJobIsToStopItFailsInThatStepOnEveryRankAndSaysWhere) {
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

TEST(NonfiniteGradientTest, TrainingGoesOnWithTheBitsOfOneRank) {
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
