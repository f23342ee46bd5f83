#include "fsdp/sharded_unit.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <vector>

#include "comm/memory_store.h"
#include "comm/nccl_communicator.h"
#include "comm/thread_communicator.h"
#include "fsdp/cuda/shard_work.h"
#include "tests/ops/compare.h"

namespace tandem::fsdp {
namespace {

using ops::test::SameBits;

constexpr int kContributions = 3;
constexpr int kSteps = 4;

struct Outcome {
  at::Tensor weights;
  at::Tensor exp_avg;
  at::Tensor exp_avg_sq;
  at::Tensor gathered;
  std::vector<NormOutcome> agreed;
  std::vector<ParameterNorms> norms;
};

// One rank; step `broken` has gradients that are not finite.
Outcome Train(const Layout& layout, at::ScalarType dtype, bool on_gpu, int broken) {
  comm::MemoryStore store;
  const std::unique_ptr<comm::Communicator> comm =
      on_gpu ? comm::MakeNcclCommunicator("test", store, "test", 0, 1, 0, absl::Minutes(1))
             : std::move(comm::MakeThreadCommunicators("test", 1)[0]);
  const auto options = at::TensorOptions().dtype(dtype).device(on_gpu ? at::kCUDA : at::kCPU);
  const auto fresh = [&] {
    return at::full({GatheredElements(layout, 1)}, std::numeric_limits<double>::quiet_NaN(), options);
  };
  ShardedUnit unit("unit", layout, 1, 0, fresh(), fresh(), fresh(), fresh(),
                   on_gpu ? MakeShardWork(MakeCudaShardWork) : MakeShardWork(MakeCpuShardWork));
  std::vector<ParameterInit> inits(layout.parameters.size(), {.deviation = 0.3});
  inits.back() = {.ones = true};
  unit.Initialize(5, inits);
  ops::test::Numbers numbers(77);
  at::Tensor staging = fresh();
  std::unique_ptr<CudaNorm> norm = on_gpu ? std::make_unique<CudaNorm>(1) : nullptr;
  Outcome outcome;
  for (int step = 1; step <= kSteps; ++step) {
    for (int contribution = 0; contribution < kContributions; ++contribution) {
      at::Tensor slot = numbers.Normal({GatheredElements(layout, 1)}).to(dtype);
      if (step == broken && contribution == 1) {
        ParameterViews(layout, slot)[0].view({-1})[1].fill_(std::numeric_limits<double>::infinity());
      }
      unit.ReduceGradients(*comm, slot.to(options.device()), staging, /*add=*/contribution > 0);
    }
    NormOutcome agreed;
    const NormOutcome* pointer = &agreed;
    if (on_gpu) {
      norm->Start({.bits = 5});
      unit.AddTerms(norm->terms());
      norm->Agree(*comm, kContributions, 1.5);
      pointer = norm->outcome();
    } else {
      NormTerms terms{.requests = 5};
      unit.AddTerms(&terms);
      agreed = AgreeOnNorm(&terms, 1, kContributions, 1.5);
    }
    unit.OptimizerStep({.step = step,
                        .learning_rate = 1e-2,
                        .beta1 = 0.9,
                        .beta2 = 0.95,
                        .epsilon = 1e-8,
                        .weight_decay = 0.1,
                        .divisor = kContributions,
                        .agreed = pointer});
    unit.weights().sum().item<double>();  // waits for the GPU
    outcome.agreed.push_back(on_gpu ? norm->Read() : agreed);
    const std::vector<ParameterNorms> norms = unit.norms();
    outcome.norms.insert(outcome.norms.end(), norms.begin(), norms.end());
  }
  at::Tensor slot = fresh();
  unit.Unshard(*comm, slot);
  outcome.gathered = slot.cpu();
  outcome.weights = unit.weights().cpu();
  outcome.exp_avg = unit.exp_avg().cpu();
  outcome.exp_avg_sq = unit.exp_avg_sq().cpu();
  return outcome;
}

class CudaShardedUnitTest : public testing::TestWithParam<at::ScalarType> {};

// Reduction, norm, clipping, optimizer and norms per parameter: the GPU's bits are the CPU's.
TEST_P(CudaShardedUnitTest, GivesTheBitsOfTheCpu) {
  const Layout layout = MakeLayout({{.name = "a", .shape = {130, 257}},
                                    {.name = "b", .shape = {33}},
                                    {.name = "c", .shape = {5, 7}, .block = 0},
                                    {.name = "d", .shape = {3, 7}, .block = 0},
                                    {.name = "e", .shape = {64}}},
                                   GetParam() == at::kDouble ? 8 : 4);
  for (const int broken : {0, 3}) {
    SCOPED_TRACE(broken);
    const Outcome cpu = Train(layout, GetParam(), false, broken);
    const Outcome gpu = Train(layout, GetParam(), true, broken);
    EXPECT_TRUE(SameBits(cpu.weights, gpu.weights));
    EXPECT_TRUE(SameBits(cpu.exp_avg, gpu.exp_avg));
    EXPECT_TRUE(SameBits(cpu.exp_avg_sq, gpu.exp_avg_sq));
    for (size_t i = 0; i < layout.parameters.size(); ++i) {
      EXPECT_TRUE(SameBits(ParameterViews(layout, cpu.gathered)[i].contiguous(),
                           ParameterViews(layout, gpu.gathered)[i].contiguous()));
    }
    for (int step = 0; step < kSteps; ++step) {
      EXPECT_EQ(cpu.agreed[step].norm, gpu.agreed[step].norm) << step;
      EXPECT_EQ(cpu.agreed[step].clip, gpu.agreed[step].clip) << step;
      EXPECT_EQ(cpu.agreed[step].nonfinite, gpu.agreed[step].nonfinite) << step;
      EXPECT_EQ(cpu.agreed[step].finite, step + 1 != broken);
      EXPECT_EQ(gpu.agreed[step].finite, step + 1 != broken);
      EXPECT_EQ(gpu.agreed[step].requests, 5u);
    }
    ASSERT_EQ(cpu.norms.size(), gpu.norms.size());
    for (size_t i = 0; i < cpu.norms.size(); ++i) {
      EXPECT_EQ(cpu.norms[i].weight.value(), gpu.norms[i].weight.value()) << i;
      EXPECT_EQ(cpu.norms[i].update.value(), gpu.norms[i].update.value()) << i;
      if (std::isfinite(cpu.norms[i].gradient.value())) {
        EXPECT_EQ(cpu.norms[i].gradient.value(), gpu.norms[i].gradient.value()) << i;
      } else {
        EXPECT_FALSE(std::isfinite(gpu.norms[i].gradient.value())) << i;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Types, CudaShardedUnitTest, testing::Values(at::kFloat, at::kDouble),
                         [](const auto& info) { return std::string(c10::toString(info.param)); });

}  // namespace
}  // namespace tandem::fsdp
