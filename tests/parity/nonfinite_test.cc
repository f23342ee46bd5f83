#include <gtest/gtest.h>

#include <limits>
#include <memory>
#include <utility>

#include "device/device.h"
#include "fsdp/shard_work.h"
#include "ops/operations.h"
#include "tests/parity/expect_same.h"
#include "tests/parity/job.h"
#include "tests/parity/run.h"
#include "trainer/backend.h"

namespace tandem::parity {
namespace {

constexpr int kMicrobatchesOfAStep = 6;  // of all ranks, in a step
constexpr int64_t kBadStep = 3;
constexpr int64_t kBadElement = 70;  // of every layer's buffer: one rank owns it

// The CPU's loops; the accumulated gradient of kBadStep has an infinity at kBadElement.
class InfiniteGradient final : public fsdp::ShardWork {
 public:
  InfiniteGradient(fsdp::ShardMemory memory, int rounds)
      : memory_(memory), rounds_(rounds), work_(fsdp::MakeCpuShardWork(std::move(memory))) {}

  void Fold(const void* staging, bool add) override {
    work_->Fold(staging, add);
    const int64_t step = folds_++ / rounds_ + 1;
    for (const fsdp::Piece& piece : memory_.pieces) {
      // Units of two items or fewer are the embedding and the head.
      if (step == kBadStep && memory_.num_parameters > 2 && piece.range.begin <= kBadElement &&
          kBadElement < piece.range.end) {
        static_cast<float*>(memory_.gradient)[kBadElement - memory_.begin] =
            std::numeric_limits<float>::infinity();
      }
    }
  }
  void AddTerms(fsdp::NormTerms* terms) override { work_->AddTerms(terms); }
  void OptimizerStep(const fsdp::OptimizerInputs& inputs) override { work_->OptimizerStep(inputs); }
  std::vector<fsdp::ParameterNorms> norms() const override { return work_->norms(); }

 private:
  const fsdp::ShardMemory memory_;
  const int rounds_;
  const std::unique_ptr<fsdp::ShardWork> work_;
  int64_t folds_ = 0;
};

class InfiniteGradientBackend final : public trainer::Backend {
 public:
  explicit InfiniteGradientBackend(int rounds) : rounds_(rounds) {}

  device::Device& device() override { return cpu_->device(); }
  const ops::Operations& operations() const override { return cpu_->operations(); }
  fsdp::MakeShardWork shard_work() const override {
    return [rounds = rounds_](fsdp::ShardMemory memory) {
      return std::make_unique<InfiniteGradient>(std::move(memory), rounds);
    };
  }
  std::unique_ptr<trainer::GradientNorm> MakeGradientNorm(int ranks) override {
    return cpu_->MakeGradientNorm(ranks);
  }
  std::unique_ptr<comm::Communicator> MakeCommunicator(const trainer::GroupMembership& group,
                                                       const trainer::Rendezvous& rendezvous,
                                                       comm::Communicator* clone_of) override {
    return cpu_->MakeCommunicator(group, rendezvous, clone_of);
  }
  bool needs_watch() const override { return false; }

 private:
  const std::unique_ptr<trainer::Backend> cpu_ = trainer::MakeCpuBackend();
  const int rounds_;
};

JobRun RunOn(int ranks, int64_t steps) {
  const int rounds = kMicrobatchesOfAStep / ranks;
  plan::JobPlan plan = MakeJob({.ranks = ranks, .microbatches_per_rank = rounds, .steps = 6, .layers = 1});
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
    EXPECT_EQ(at.steps.back().nonfinite, 1);
    EXPECT_EQ(before.steps.back().nonfinite, 0);
    for (const double update : at.steps.back().update) {
      EXPECT_EQ(update, 0);
    }
  }
}

TEST(NonfiniteGradientTest, TrainingGoesOnWithTheBitsOfOneRank) {
  const JobRun one = RunOn(1, 6);
  ASSERT_EQ(one.steps.size(), 6u);
  EXPECT_EQ(one.steps[kBadStep].nonfinite, 0);
  EXPECT_GT(one.steps[kBadStep].update[0], 0);
  for (const int ranks : {2, 6}) {
    SCOPED_TRACE(ranks);
    ExpectSameBits(one, RunOn(ranks, 6));
  }
}

}  // namespace
}  // namespace tandem::parity
