// SPDX-License-Identifier: Apache-2.0
// The loops over shards without a communicator: in forms that one GPU alone does not reach through a unit.
#include "fsdp/shard_kernels.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "fsdp/buffer_bytes.h"
#include "fsdp/cuda/shard_kernels.h"
#include "fsdp/quick_quotient.h"
#include "tests/ops/compare.h"

namespace tandem::fsdp {
namespace {

struct FoldTypes {
  at::ScalarType main;
  at::ScalarType contributions;
};

struct Folded {
  at::Tensor gradients;  // on the host, like the terms
  UnitNormTerms terms;
};

// staging, before: on the host. Gaps of the shard keep what was there before.
Folded FoldOn(at::DeviceType device, const ShardKernels& kernels, const ShardGeometry& geometry,
              int64_t terms_bytes, const at::Tensor& staging, const at::Tensor& before, bool add,
              bool with_terms) {
  const at::Tensor contributions = staging.to(device);
  at::Tensor gradients = before.to(device, before.scalar_type(), /*non_blocking=*/false, /*copy=*/true);
  at::Tensor terms = at::full({terms_bytes}, 0xFF, at::TensorOptions(device).dtype(at::kByte));
  kernels.MakeUnit(geometry)->Fold(
      contributions.const_data_ptr(), gradients.mutable_data_ptr(), add,
      with_terms ? static_cast<UnitNormTerms*>(terms.mutable_data_ptr()) : nullptr);
  Folded folded{.gradients = gradients.cpu()};
  if (with_terms) {
    const at::Tensor on_host = terms.cpu();
    std::memcpy(&folded.terms, on_host.const_data_ptr(), sizeof(folded.terms));
  }
  return folded;
}

class CudaFoldTest : public testing::TestWithParam<FoldTypes> {};

// Both shards of two: whole tiles, chunks that begin and end with a parameter, and parameters that begin or
// end in the other shard. What is not finite is in a contribution that is not the first.
TEST_P(CudaFoldTest, OfSeveralContributionsGivesTheCpusBits) {
  constexpr int kContributions = 4;
  const auto& [main, contributions] = GetParam();
  const Layout layout = MakeLayout({{.name = "a", .shape = {130, 257}},
                                    {.name = "b", .shape = {33}},
                                    {.name = "c", .shape = {5, 7}, .block = 0},
                                    {.name = "d", .shape = {3, 7}, .block = 0},
                                    {.name = "e", .shape = {300, 1001}},
                                    {.name = "f", .shape = {70}}},
                                   main == at::kDouble ? 8 : 2);
  const int64_t elements = ShardElements(layout, {.inner = 2});
  const int64_t terms_bytes = BufferBytesOf(layout, {}, main == at::kDouble ? 8 : 4).norm_terms;
  ops::test::Numbers numbers(88);
  for (const int64_t begin : {int64_t{0}, elements}) {
    const ShardGeometry geometry{.fp64 = main == at::kDouble,
                                 .reduces_bf16 = contributions == at::kBFloat16,
                                 .begin = begin,
                                 .shard_elements = elements,
                                 .num_ranks = kContributions,
                                 .num_parameters = static_cast<int>(layout.parameters.size()),
                                 .pieces = PiecesOf(layout, {begin, begin + elements})};
    const at::Tensor staging = numbers.Normal({kContributions, elements}).to(contributions);
    const at::Tensor before = numbers.Normal({elements}).to(main);
    at::Tensor broken = staging.clone();
    const Range first = geometry.pieces.front().range;
    broken[2][first.begin - begin + first.size() / 2].fill_(std::numeric_limits<double>::infinity());
    for (const bool add : {false, true}) {
      for (const bool with_terms : {false, true}) {
        for (const at::Tensor& of_ranks : {staging, broken}) {
          SCOPED_TRACE(testing::Message()
                       << "shard at " << begin << (add ? ", added" : "") << (with_terms ? ", terms" : "")
                       << ", finite " << of_ranks.is_same(staging));
          const auto fold = [&](at::DeviceType device, const ShardKernels& kernels) {
            return FoldOn(device, kernels, geometry, terms_bytes, of_ranks, before, add, with_terms);
          };
          const Folded expected = fold(at::kCPU, CpuShardKernels());
          const Folded actual = fold(at::kCUDA, CudaShardKernels());
          EXPECT_TRUE(ops::test::SameBits(actual.gradients, expected.gradients));
          EXPECT_EQ(actual.terms.squares.value(), expected.terms.squares.value());
          EXPECT_EQ(actual.terms.nonfinite, expected.terms.nonfinite);
          EXPECT_EQ(expected.terms.nonfinite, with_terms && of_ranks.is_same(broken) ? 1 : 0);
        }
      }
    }
  }
}

// Whole packs and single elements, from places where packs may begin and from others.
TEST(CudaRoundTest, GivesTheBitsOfTheCpu) {
  ops::test::Numbers numbers(89);
  at::Tensor floats = numbers.Normal({10'007}).to(at::kFloat);
  floats[17].fill_(std::numeric_limits<double>::infinity());
  floats[18].fill_(std::numeric_limits<double>::quiet_NaN());
  const at::Tensor on_gpu = floats.to(at::kCUDA);
  for (const int64_t begin : {0, 3, 8}) {
    const auto round = [&](const at::Tensor& from, const ShardKernels& kernels) {
      at::Tensor to = at::full({10'010}, 7, from.options().dtype(at::kBFloat16));
      kernels.Round(from.const_data_ptr<float>() + begin, 10'007 - begin,
                    static_cast<Bf16*>(to.mutable_data_ptr()) + begin);
      return to.cpu();
    };
    EXPECT_TRUE(ops::test::SameBits(round(on_gpu, CudaShardKernels()), round(floats, CpuShardKernels())));
  }
}

INSTANTIATE_TEST_SUITE_P(Types, CudaFoldTest,
                         testing::Values(FoldTypes{at::kFloat, at::kFloat},
                                         FoldTypes{at::kFloat, at::kBFloat16},
                                         FoldTypes{at::kDouble, at::kDouble}),
                         [](const auto& info) {
                           return std::string(c10::toString(info.param.contributions));
                         });

struct Moments {
  std::vector<float> exp_avg;
  std::vector<float> exp_avg_sq;
};

// At the end of QuickBounds. A warp takes 256 elements at a time: these are all below the bound, with
// quotients in the middle between two subnormal numbers; or all from the bound on.
Moments MomentsAtTheBound(int64_t elements, double correction2) {
  std::mt19937_64 random(89);
  Moments moments;
  for (int64_t i = 0; i < elements; ++i) {
    const double middle = std::ldexp(static_cast<double>(2 * (random() % (1 << 20) + (1 << 20)) + 1), -150);
    const double above =
        QuickBounds::kLeastExpAvg * (1 + std::ldexp(static_cast<double>(random() % 4096), -12));
    const double root = std::ldexp(3.0, 38);  // of exp_avg_sq / correction2
    moments.exp_avg.push_back(static_cast<float>(i / 256 % 2 == 0 ? middle * root : above));
    moments.exp_avg_sq.push_back(static_cast<float>(root * root * correction2));
  }
  return moments;
}

// The weights after one step from 0 without a gradient, whose update is the moments' quotient.
at::Tensor StepOn(at::DeviceType device, const ShardKernels& kernels, const Layout& layout,
                  const Moments& moments, double correction2) {
  const auto on_device = [&](const void* data, size_t bytes) {
    at::Tensor copy = at::empty({static_cast<int64_t>(bytes)}, at::kByte);
    std::memcpy(copy.mutable_data_ptr(), data, bytes);
    return copy.to(device);
  };
  const NormOutcome outcome{.norm = 1};
  const RunInputs inputs{.update = 1, .learning_rate = 1, .correction2 = correction2};
  const size_t bytes = moments.exp_avg.size() * sizeof(float);
  at::Tensor exp_avg = on_device(moments.exp_avg.data(), bytes);
  at::Tensor exp_avg_sq = on_device(moments.exp_avg_sq.data(), bytes);
  const at::Tensor outcomes = on_device(&outcome, sizeof(outcome));
  const at::Tensor run_inputs = on_device(&inputs, sizeof(inputs));
  const at::TensorOptions of_float = at::TensorOptions(device).dtype(at::kFloat);
  const at::Tensor gradients = at::zeros({layout.elements}, of_float);
  at::Tensor weights = at::zeros({layout.elements}, of_float);
  const std::unique_ptr<UnitKernels> unit =
      kernels.MakeUnit({.shard_elements = layout.elements,
                        .num_parameters = 1,
                        .pieces = PiecesOf(layout, {.begin = 0, .end = layout.elements})});
  unit->OptimizerStep({.gradients = gradients.const_data_ptr(),
                       .weights = weights.mutable_data_ptr(),
                       .exp_avg = exp_avg.mutable_data_ptr(),
                       .exp_avg_sq = exp_avg_sq.mutable_data_ptr(),
                       .outcome = static_cast<const NormOutcome*>(outcomes.const_data_ptr()),
                       .inputs = static_cast<const RunInputs*>(run_inputs.const_data_ptr())},
                      {.beta1 = 1, .beta2 = 1, .epsilon = 1e-8});
  return weights.cpu();
}

TEST(CudaOptimizerStepTest, QuotientsAtTheBoundHaveTheCpusBits) {
  const Layout layout = MakeLayout({{.name = "a", .shape = {1 << 16}}}, 4);
  const double correction2 = QuickBounds::kLeastCorrection;
  const Moments moments = MomentsAtTheBound(layout.elements, correction2);
  const at::Tensor expected = StepOn(at::kCPU, CpuShardKernels(), layout, moments, correction2);
  const at::Tensor actual = StepOn(at::kCUDA, CudaShardKernels(), layout, moments, correction2);
  EXPECT_TRUE(ops::test::SameBits(actual, expected));
  EXPECT_LT(expected.abs().max().item<float>(), 0x1p-110F);
  EXPECT_GT(expected.abs().min().item<float>(), 0) << "some are not subnormal, but zero";
}

}  // namespace
}  // namespace tandem::fsdp
