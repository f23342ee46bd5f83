// SPDX-License-Identifier: Apache-2.0
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/full.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "comm/nccl_factory.h"
#include "device/cuda/device.h"
#include "fsdp/class_shard.h"
#include "fsdp/cuda/shard_kernels.h"
#include "tests/comm/memory_store.h"
#include "tests/comm/run_thread_ranks.h"
#include "tests/comm/thread_groups.h"
#include "tests/device/tensors.h"
#include "tests/fsdp/test_unit.h"
#include "tests/ops/compare.h"

namespace tandem::fsdp {
namespace {

using test::SameBits;
using test::TestUnit;
using test::Views;

constexpr int kRounds = 3;
constexpr int kSteps = 4;

struct Outcome {
  std::vector<at::Tensor> weights;  // by rank
  std::vector<at::Tensor> exp_avg;
  std::vector<at::Tensor> exp_avg_sq;
  at::Tensor gathered;
  std::vector<NormOutcome> agreed;                 // by step
  std::vector<UnitNormTerms> terms;                // by step and rank
  std::vector<std::vector<ParameterNorms>> norms;  // by rank, of all steps
};

// Ranks are threads, with a GPU each where on_gpu. Step `broken` has gradients that are not finite, or whose
// norm is above a limit. scales: what contributions are multiplied with, or undefined.
Outcome Train(const Layout& layout, ClassTypes types, int ranks, bool on_gpu, int broken,
              const at::Tensor& scales = {}, bool by_limit = false) {
  const auto size = static_cast<size_t>(ranks);
  Outcome outcome{.weights = std::vector<at::Tensor>(size),
                  .exp_avg = std::vector<at::Tensor>(size),
                  .exp_avg_sq = std::vector<at::Tensor>(size),
                  .agreed = std::vector<NormOutcome>(kSteps),
                  .terms = std::vector<UnitNormTerms>(kSteps * size),
                  .norms = std::vector<std::vector<ParameterNorms>>(size)};
  comm::MemoryStore store;
  comm::ThreadGroups threads;
  comm::RunThreadRanks(ranks, [&](int rank) {
    const std::unique_ptr<device::Device> device =
        on_gpu ? device::MakeCudaDevice(rank) : device::MakeCpuDevice();
    const std::unique_ptr<comm::Communicator> comm =
        on_gpu ? comm::MakeNcclCommunicator("test", store, "test", rank, ranks, rank, absl::Minutes(1))
               : threads.MakeFactory()->Make({.group = "test", .prefix = "test", .rank = rank, .size = ranks},
                                             nullptr);
    TestUnit unit(layout, types, *comm, *device, on_gpu ? CudaShardKernels() : CpuShardKernels(),
                  test::kAdamW);
    unit.Initialize(5, 0.3);
    ops::test::Numbers numbers(77 + rank);
    for (int step = 1; step <= kSteps; ++step) {
      for (int round = 0; round < kRounds; ++round) {
        at::Tensor contribution = numbers.Normal({PaddedElements(layout, {.inner = ranks})});
        if (scales.defined()) {
          contribution = contribution * scales;
        }
        contribution = contribution.to(device::ScalarTypeOf(types.transport));
        if (step == broken && round == 1 && !by_limit) {
          Views(layout, contribution)[0].view({-1})[1].fill_(std::numeric_limits<double>::infinity());
        }
        unit.Reduce(contribution, /*add=*/round > 0, /*last=*/round + 1 == kRounds);
      }
      outcome.terms[static_cast<size_t>((step - 1) * ranks + rank)] = unit.terms();
      const NormOutcome agreed =
          unit.Norm(kRounds * ranks, 1.5,
                    {.bits = rank == 0 ? 5u : 2u, .limit = by_limit && step == broken ? 1e-6 : 0});
      if (rank == 0) {
        outcome.agreed[static_cast<size_t>(step - 1)] = agreed;
      }
      unit.OptimizerStep(step);
      const std::vector<ParameterNorms> norms = unit.norms();
      auto& all = outcome.norms[static_cast<size_t>(rank)];
      all.insert(all.end(), norms.begin(), norms.end());
    }
    const at::Tensor gathered = unit.Unshard();
    if (rank == 0) {
      outcome.gathered = gathered;
    }
    outcome.weights[static_cast<size_t>(rank)] = unit.weights();
    outcome.exp_avg[static_cast<size_t>(rank)] = unit.exp_avg();
    outcome.exp_avg_sq[static_cast<size_t>(rank)] = unit.exp_avg_sq();
  });
  return outcome;
}

void ExpectSame(const Layout& layout, const Outcome& cpu, const Outcome& gpu, int ranks, int broken) {
  for (size_t rank = 0; rank < cpu.weights.size(); ++rank) {
    EXPECT_TRUE(SameBits(cpu.weights[rank], gpu.weights[rank]));
    EXPECT_TRUE(SameBits(cpu.exp_avg[rank], gpu.exp_avg[rank]));
    EXPECT_TRUE(SameBits(cpu.exp_avg_sq[rank], gpu.exp_avg_sq[rank]));
    ASSERT_EQ(cpu.norms[rank].size(), gpu.norms[rank].size());
    for (size_t i = 0; i < cpu.norms[rank].size(); ++i) {
      const ParameterNorms& a = cpu.norms[rank][i];
      const ParameterNorms& b = gpu.norms[rank][i];
      EXPECT_EQ(a.weight.squares.value(), b.weight.squares.value()) << i;
      EXPECT_EQ(a.update.squares.value(), b.update.squares.value()) << i;
      EXPECT_EQ(a.weight.max_abs, b.weight.max_abs) << i;
      EXPECT_EQ(a.gradient.max_abs, b.gradient.max_abs) << i;
      EXPECT_EQ(a.update.max_abs, b.update.max_abs) << i;
      if (std::isfinite(a.gradient.squares.value())) {
        EXPECT_EQ(a.gradient.squares.value(), b.gradient.squares.value()) << i;
      } else {
        EXPECT_FALSE(std::isfinite(b.gradient.squares.value())) << i;
      }
    }
  }
  for (size_t i = 0; i < layout.parameters.size(); ++i) {
    EXPECT_TRUE(
        SameBits(Views(layout, cpu.gathered)[i].contiguous(), Views(layout, gpu.gathered)[i].contiguous()));
  }
  for (size_t i = 0; i < cpu.terms.size(); ++i) {
    EXPECT_EQ(cpu.terms[i].squares.value(), gpu.terms[i].squares.value()) << i;
    EXPECT_EQ(cpu.terms[i].nonfinite, gpu.terms[i].nonfinite) << i;
  }
  for (int step = 0; step < kSteps; ++step) {
    EXPECT_EQ(std::bit_cast<uint64_t>(cpu.agreed[step].norm), std::bit_cast<uint64_t>(gpu.agreed[step].norm))
        << step;
    EXPECT_EQ(cpu.agreed[step].clip, gpu.agreed[step].clip) << step;
    EXPECT_EQ(cpu.agreed[step].nonfinite, gpu.agreed[step].nonfinite) << step;
    EXPECT_EQ(cpu.agreed[step].applied, step + 1 != broken);
    EXPECT_EQ(gpu.agreed[step].applied, step + 1 != broken);
    EXPECT_EQ(gpu.agreed[step].requests, ranks == 1 ? 5u : 7u);
  }
}

class CudaUnitShardTest : public testing::TestWithParam<ClassTypes> {
 protected:
  static Layout LayoutOf(const std::vector<ParameterSpec>& parameters) {
    return MakeLayout(parameters, GetParam().main == device::ElementKind::kDouble ? 8 : 2);
  }
  static void ExpectBitsOfTheCpu(const Layout& layout, int ranks, int broken, const at::Tensor& scales = {},
                                 bool by_limit = false) {
    const auto train = [&](bool on_gpu) {
      return Train(layout, GetParam(), ranks, on_gpu, broken, scales, by_limit);
    };
    ExpectSame(layout, train(false), train(true), ranks, broken);
  }
};

// Fold with norm terms, exchange of the norm, clipping, optimizer from device inputs and norms per parameter:
// the GPU's bits are the CPU's, on one GPU and on two.
TEST_P(CudaUnitShardTest, GivesTheBitsOfTheCpu) {
  const Layout layout = LayoutOf({{.name = "a", .shape = {130, 257}},
                                  {.name = "b", .shape = {33}},
                                  {.name = "c", .shape = {5, 7}, .block = 0},
                                  {.name = "d", .shape = {3, 7}, .block = 0},
                                  {.name = "e", .shape = {64}}});
  for (int ranks = 1; ranks <= std::min(2, device::CountCudaDevices()); ++ranks) {
    for (const int broken : {0, 3}) {
      SCOPED_TRACE(testing::Message() << ranks << " ranks, broken " << broken);
      ExpectBitsOfTheCpu(layout, ranks, broken);
    }
  }
}

TEST_P(CudaUnitShardTest, SkipsAStepAboveTheLimitLikeCpus) {
  const Layout layout = LayoutOf({{.name = "a", .shape = {130, 257}}, {.name = "b", .shape = {33}}});
  ExpectBitsOfTheCpu(layout, /*ranks=*/1, /*broken=*/3, /*scales=*/{}, /*by_limit=*/true);
}

TEST_P(CudaUnitShardTest, StartsFromTheNumbersOfTheCpu) {
  const Layout layout = LayoutOf({{.name = "a", .shape = {1000, 4001}}, {.name = "b", .shape = {33}}});
  const auto weights = [&](device::Device& device, const ShardKernels& kernels) {
    comm::ThreadGroups threads;
    const std::unique_ptr<comm::Communicator> comm =
        threads.MakeFactory()->Make({.group = "test", .prefix = "test", .rank = 0, .size = 1}, nullptr);
    TestUnit unit(layout, GetParam(), *comm, device, kernels);
    unit.Initialize(2026, 0.02);
    return unit.weights();
  };
  const std::unique_ptr<device::Device> cpu = device::MakeCpuDevice();
  const std::unique_ptr<device::Device> gpu = device::MakeCudaDevice(0);
  EXPECT_TRUE(SameBits(weights(*cpu, CpuShardKernels()), weights(*gpu, CudaShardKernels())));
}

// One piece in many tiles: more than there are blocks that leave a partial sum.
TEST_P(CudaUnitShardTest, ALargeParameterToo) {
  const Layout layout =
      LayoutOf({{.name = "small", .shape = {77}, .decays = false}, {.name = "large", .shape = {17'100'003}}});
  ExpectBitsOfTheCpu(layout, /*ranks=*/1, /*broken=*/3);
}

// Gradients, moments and their quotients down to subnormal ones and zeros of both signs: 256 elements at a
// time are within the bounds of the fast arithmetic, or one of them is not.
TEST_P(CudaUnitShardTest, NumbersOfAllMagnitudesToo) {
  const Layout layout = LayoutOf({{.name = "a", .shape = {512, 1024}}, {.name = "b", .shape = {90, 333}}});
  at::Tensor scales = at::full({PaddedElements(layout, {.inner = 1})}, 1.0, at::kDouble);
  for (int64_t i = 0; i < scales.numel(); ++i) {
    const int64_t range = i / 256;
    const double magnitude = std::pow(10.0, static_cast<double>(range % 49) - 45);  // 1e-45 ... 1e3
    scales.data_ptr<double>()[i] = i % 5 == 0 ? 0 : range % 3 == 0 ? magnitude : range % 3 == 1 ? 1e-3 : 0;
  }
  ExpectBitsOfTheCpu(layout, /*ranks=*/1, /*broken=*/0, scales);
}

// The first rank owns all of it.
TEST_P(CudaUnitShardTest, ARankWithoutElementsTakesPart) {
  if (device::CountCudaDevices() < 2) {
    GTEST_SKIP() << "needs two GPUs";
  }
  const Layout layout = LayoutOf({{.name = "norm", .shape = {9}}});
  ExpectBitsOfTheCpu(layout, /*ranks=*/2, /*broken=*/0);
}

INSTANTIATE_TEST_SUITE_P(Types, CudaUnitShardTest, testing::ValuesIn(test::kClassTypes),
                         [](const auto& info) { return test::NameOf(info.param); });

}  // namespace
}  // namespace tandem::fsdp
