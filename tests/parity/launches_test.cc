// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <variant>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "ops/device_kernels.h"
#include "tests/ops/forwarding_kernels.h"
#include "tests/parity/fakes.h"
#include "tests/parity/job.h"
#include "tests/parity/run.h"
#include "trainer/backend.h"

namespace tandem::parity {
namespace {

// How often kernels run: a node that launches one twice, or for nothing, has the same numbers.

// By kind, over all ranks. Thread-safe.
class Launches {
 public:
  void Add(const std::string& kind) ABSL_LOCKS_EXCLUDED(mu_) {
    const absl::MutexLock lock(&mu_);
    ++counts_[kind];
  }
  int64_t Of(const std::string& kind) ABSL_LOCKS_EXCLUDED(mu_) {
    const absl::MutexLock lock(&mu_);
    return counts_[kind];
  }

 private:
  absl::Mutex mu_;
  std::map<std::string, int64_t> counts_ ABSL_GUARDED_BY(mu_);
};

std::string KindOf(const ops::KernelCall& call) {
  if (std::holds_alternative<ops::AttentionArgs<float>>(call)) {
    return "attention";
  }
  if (std::holds_alternative<ops::AttentionBackwardArgs<float>>(call)) {
    return "attention backward";
  }
  if (std::holds_alternative<ops::RmsNormArgs<float>>(call)) {
    return "norm";
  }
  if (std::holds_alternative<ops::RmsNormBackwardArgs<float>>(call)) {
    return "norm backward";
  }
  if (std::holds_alternative<ops::CrossEntropyArgs<float>>(call)) {
    return "loss";
  }
  if (std::holds_alternative<ops::GroupedLinearArgs<float>>(call)) {
    return "experts";
  }
  if (std::holds_alternative<ops::GroupedLinearBackwardInputArgs<float>>(call)) {
    return "experts backward input";
  }
  if (std::holds_alternative<ops::GroupedLinearBackwardWeightArgs<float>>(call)) {
    return "experts backward weight";
  }
  return "other";
}

class CountedKernels final : public ops::ForwardingKernels {
 public:
  CountedKernels(const ops::DeviceKernels& inner, Launches& launches)
      : ForwardingKernels(inner), launches_(launches) {}

  ops::Call Bind(const ops::KernelCall& call) const override {
    return Counted(KindOf(call), inner_.Bind(call));
  }
  ops::Call Bind(const ops::SparseKernelCall& call) const override {
    return Counted("sparse", inner_.Bind(call));
  }
  ops::Call Bind(const ops::ProductArgs& product) const override {
    return Counted("product", inner_.Bind(product));
  }

 private:
  ops::Call Counted(std::string kind, ops::Call call) const {
    return [this, kind = std::move(kind), call = std::move(call)] {
      launches_.Add(kind);
      call();
    };
  }

  Launches& launches_;
};

JobRun RunCounted(const JobOptions& options, Launches& launches) {
  return RunJob(MakeJob(options), {.make_backend = [&launches](int) -> std::unique_ptr<trainer::Backend> {
                  return std::make_unique<WithKernels<CountedKernels>>(launches);
                }});
}

TEST(LaunchesTest, EachKernelOfALayerRunsOnce) {
  for (const bool recomputed : {false, true}) {
    SCOPED_TRACE(recomputed ? "layers recomputed" : "everything kept");
    const JobOptions options{
        .microbatches_per_rank = 3, .steps = 2, .layers = 2, .recompute = recomputed ? "layer" : "off"};
    Launches launches;
    RunCounted(options, launches);
    const int64_t microbatches = options.steps * options.microbatches_per_rank;
    const int64_t layers = microbatches * options.layers;
    const int64_t forwards = recomputed ? 2 : 1;
    EXPECT_EQ(launches.Of("attention"), layers * forwards);
    EXPECT_EQ(launches.Of("attention backward"), layers);
    // Norms are not kept: the weight half of a product computes what it reads once more.
    EXPECT_EQ(launches.Of("norm"), 2 * layers * forwards + microbatches + 2 * layers + microbatches);
    EXPECT_EQ(launches.Of("norm backward"), 2 * layers + microbatches);
    EXPECT_EQ(launches.Of("loss"), microbatches);
    // Queries, keys and values together, their output, gate and up together, down; and the head. A backward
    // has two for each. The output of the MLP is not computed again.
    EXPECT_EQ(launches.Of("product"), 3 * (4 * layers + microbatches) + (recomputed ? 3 * layers : 0));
  }
}

// A pass over rows of experts that has none would show.
TEST(LaunchesTest, ExpertsRunForPassesThatHaveRows) {
  JobOptions options = SparseJob();
  options.ranks = 2;
  options.expert_parallel = 2;
  options.microbatches_per_rank = 2;
  options.steps = 2;
  Launches launches;
  const JobRun run = RunCounted(options, launches);
  int64_t passes = options.steps * options.ranks * options.microbatches_per_rank * options.layers;
  for (const v1::StepReport& step : run.steps) {
    passes += static_cast<int64_t>(step.scalars().at("moe_further_passes"));
  }
  EXPECT_EQ(launches.Of("experts"), 2 * passes);
  EXPECT_EQ(launches.Of("experts backward input"), 2 * passes);
  EXPECT_EQ(launches.Of("experts backward weight"), 2 * passes);
}

}  // namespace
}  // namespace tandem::parity
