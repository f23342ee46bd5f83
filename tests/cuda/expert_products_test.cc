// SPDX-License-Identifier: Apache-2.0
#include <ATen/core/Tensor.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <c10/core/Device.h>
#include <gtest/gtest.h>

#include <array>
#include <limits>
#include <numeric>
#include <vector>

#include "ops/array_checks.h"
#include "ops/cuda/hopper_products.h"
#include "ops/cuda/operations.h"
#include "ops/sparse_work.h"
#include "tests/ops/compare.h"

namespace tandem::ops {
namespace {

using namespace test;

constexpr int kExpertRepeats = 50;

// Layers of Qwen3-30B-A3B whose experts two ranks share, in bfloat16, against float on the GPU: experts of
// thousands of rows, of one, of none; rows that no expert has are NaN.
TEST(CudaExpertProductsTest, ManyRowsOfManyExpertsRepeatTheirBits) {
  constexpr int64_t kExperts = 64;
  constexpr int64_t kBehind = 1000;
  std::vector<int64_t> counts;
  for (int64_t expert = 0; expert < kExperts; ++expert) {
    counts.push_back(expert * expert * 7 % 2000);
  }
  counts[5] = 1;
  counts[7] = 0;
  counts[kExperts - 1] = 0;
  const int64_t there = std::accumulate(counts.begin(), counts.end(), int64_t{0});
  const at::TensorOptions on_gpu(at::kCUDA);
  std::vector<int64_t> each = {0};
  for (const int64_t rows : counts) {
    each.push_back(each.back() + rows);
  }
  const at::Tensor begins = at::tensor(each, at::kLong).to(at::kCUDA);
  const WorkMemory work(GroupedWorkBytes(DeviceKind::kGpu, 2, /*known_rows=*/false), at::kCUDA);
  for (const auto& [inputs, outputs] : std::vector<std::array<int64_t, 2>>{{2048, 1536}, {768, 2048}}) {
    SCOPED_TRACE(testing::Message() << there << " rows, " << inputs << " -> " << outputs);
    const auto random = [&](int64_t rows, int64_t columns) {
      return at::randn({rows, columns}, on_gpu).to(at::kBFloat16);
    };
    at::Tensor x = random(there + kBehind, inputs);
    at::Tensor grad_y = random(there + kBehind, outputs);
    for (const at::Tensor& of_rows : {x, grad_y}) {
      of_rows.narrow(0, there, kBehind).fill_(std::numeric_limits<double>::quiet_NaN());
    }
    const at::Tensor weight = random(kExperts * outputs, inputs);
    const std::vector<at::Tensor> before = {
        at::full({there + kBehind, outputs}, -3, on_gpu.dtype(at::kBFloat16)),
        at::full({there + kBehind, inputs}, -3, on_gpu.dtype(at::kBFloat16)),
        FilledWithNan({kExperts * outputs, inputs}, at::kBFloat16).to(at::kCUDA),
        random(kExperts * outputs, inputs),
        FilledWithNan({kExperts * outputs, inputs}, at::kFloat).to(at::kCUDA),
        random(kExperts * outputs, inputs).to(at::kFloat)};
    const auto run = [&](at::ScalarType type) {
      std::vector<at::Tensor> out;
      for (const at::Tensor& tensor : before) {
        out.push_back(tensor.clone());
      }
      for (const int i : {0, 1, 2, 3}) {
        out[i] = out[i].to(type);
      }
      const at::Tensor from = x.to(type);
      const at::Tensor grad = grad_y.to(type);
      const at::Tensor by = weight.to(type);
      CudaOperations().GroupedLinear(begins, from, by, out[0], work)();
      CudaOperations().GroupedLinearBackwardInput(begins, grad, by, out[1], work)();
      for (const int i : {2, 3, 4, 5}) {
        CudaOperations().GroupedLinearBackwardWeight(begins, grad, from, /*add=*/i % 2 == 1, out[i], work)();
      }
      return out;
    };
    const std::vector<at::Tensor> first = run(at::kBFloat16);
    for (int repeat = 1; repeat < kExpertRepeats; ++repeat) {
      const std::vector<at::Tensor> again = run(at::kBFloat16);
      for (size_t i = 0; i < again.size(); ++i) {
        ASSERT_TRUE(again[i].equal(first[i])) << "output " << i << " does not repeat, run " << repeat;
      }
    }
    const std::vector<at::Tensor> expected = run(at::kFloat);
    for (size_t i = 0; i < first.size(); ++i) {
      EXPECT_LE(RelativeError(first[i].cpu(), expected[i].cpu()), 2 * Tolerance(first[i].scalar_type()))
          << "output " << i;
    }
  }
}

// More tiles of rows than the second and third dim of a grid allow, of rows too short for CUTLASS's kernels.
TEST(CudaExpertProductsTest, RowsMayBeMoreThan65535Tiles) {
  constexpr int64_t kRows = 65'535 * 128 + 1000;  // a tile has 64 of float, 128 of bfloat16
  constexpr int64_t kFirst = 77;
  const at::Tensor begins = at::tensor(std::vector<int64_t>{0, kFirst, kRows}, at::kLong).to(at::kCUDA);
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    SCOPED_TRACE(c10::toString(type));
    const at::TensorOptions on_gpu = at::TensorOptions(at::kCUDA).dtype(type);
    const WorkMemory work(GroupedWorkBytes(DeviceKind::kGpu, static_cast<int64_t>(c10::elementSize(type)),
                                           /*known_rows=*/false),
                          at::kCUDA);
    const at::Tensor x = at::randn({kRows, 4}, on_gpu);
    const at::Tensor weight = at::randn({2 * 4, 4}, on_gpu);
    at::Tensor y = at::full({kRows, 4}, std::numeric_limits<double>::quiet_NaN(), on_gpu);
    at::Tensor grad_x = at::full({kRows, 4}, std::numeric_limits<double>::quiet_NaN(), on_gpu);
    CudaOperations().GroupedLinear(begins, x, weight, y, work)();
    CudaOperations().GroupedLinearBackwardInput(begins, x, weight, grad_x, work)();
    for (const bool transposed : {false, true}) {
      const auto of_expert = [&](int64_t expert, int64_t first, int64_t rows) {
        const at::Tensor by = weight.narrow(0, 4 * expert, 4).to(at::kFloat);
        return x.narrow(0, first, rows).to(at::kFloat).mm(transposed ? by : by.t());
      };
      const at::Tensor expected = at::cat({of_expert(0, 0, kFirst), of_expert(1, kFirst, kRows - kFirst)});
      EXPECT_LE(RelativeError(transposed ? grad_x : y, expected), 2 * Tolerance(type))
          << (transposed ? "backward" : "forward");
    }
  }
}

// Which products are CUTLASS's; those that are not have the numbers too.
TEST(CudaExpertProductsTest, UseTensorCoresWhereRowsAndMatricesAlign) {
  if (cuda::HopperVersion().empty()) {
    GTEST_SKIP() << "needs a GPU of capability 9.0";
  }
  const at::Tensor begins = at::tensor(std::vector<int64_t>{0, 40, 100}, at::kLong).to(at::kCUDA);
  const auto random = [](int64_t rows, int64_t columns) {
    return at::randn({rows, columns}, at::TensorOptions(at::kCUDA)).to(at::kBFloat16);
  };
  const WorkMemory work(GroupedWorkBytes(DeviceKind::kGpu, 2, /*known_rows=*/false), at::kCUDA);
  const at::Tensor elements = random(1, 100 * 64 + 4).view({-1});
  struct Case {
    int64_t inputs;
    int64_t shift;  // of x, in elements
    bool aligned;
  };
  for (const Case& c : std::vector<Case>{{64, 0, true}, {64, 4, false}, {12, 0, false}}) {
    SCOPED_TRACE(testing::Message() << c.inputs << " inputs, from element " << c.shift);
    const at::Tensor x = elements.narrow(0, c.shift, 100 * c.inputs).view({100, c.inputs});
    const at::Tensor weight = random(2 * 48, c.inputs);
    at::Tensor y = random(100, 48);
    const ExpertRows rows{.begins = begins.const_data_ptr<int64_t>(),
                          .on_host = false,
                          .experts = 2,
                          .rows = 100,
                          .inputs = c.inputs,
                          .outputs = 48,
                          .work = work};
    GroupedLinearArgs<Bf16> args{rows, ElementsOf<Bf16>(x), ElementsOf<Bf16>(weight), ElementsOf<Bf16>(y)};
    EXPECT_EQ(cuda::IsHopperProduct(args), c.aligned);
    args.experts = kMostGpuGroups + 1;
    EXPECT_FALSE(cuda::IsHopperProduct(args));
    GroupedLinearBackwardWeightArgs<Bf16> of_weight{rows, args.y, args.x};
    of_weight.rounded = args.y;
    EXPECT_EQ(cuda::IsHopperProduct(of_weight), c.aligned);
    at::Tensor sums = at::zeros({1}, at::TensorOptions(at::kCUDA));
    of_weight.rounded = nullptr;
    of_weight.grad_weight = ElementsOf<float>(sums);
    EXPECT_EQ(cuda::IsHopperProduct(of_weight), c.aligned) << "into float";
    CudaOperations().GroupedLinear(begins, x, weight, y, work)();
    const at::Tensor expected =
        at::cat({x.narrow(0, 0, 40).to(at::kFloat).mm(weight.narrow(0, 0, 48).to(at::kFloat).t()),
                 x.narrow(0, 40, 60).to(at::kFloat).mm(weight.narrow(0, 48, 48).to(at::kFloat).t())});
    EXPECT_LE(RelativeError(y.cpu(), expected.cpu()), 2 * Tolerance(at::kBFloat16));
  }
}

}  // namespace
}  // namespace tandem::ops
