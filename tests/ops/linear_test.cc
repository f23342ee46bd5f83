// SPDX-License-Identifier: Apache-2.0
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/mm.h>
#include <gtest/gtest.h>

#include "ops/linear_work.h"
#include "ops/operations.h"
#include "tests/ops/compare.h"

namespace tandem::ops {
namespace {

using namespace test;

const Operations& Ops() { return CpuOperations(); }

// Full of NaN, as a node's scratch may be.
class Work {
 public:
  operator Workspace() {
    return {.begin = memory_.mutable_data_ptr(), .bytes = static_cast<int64_t>(memory_.nbytes())};
  }

 private:
  const at::Tensor memory_ = FilledWithNan({kTileBytes / 4}, at::kFloat);
};

class LinearTest : public testing::TestWithParam<at::ScalarType> {};
INSTANTIATE_TEST_SUITE_P(Types, LinearTest, AllTypes());

TEST_P(LinearTest, MatchesAutograd) {
  const at::ScalarType type = GetParam();
  Numbers numbers(11);
  for (const auto& [tokens, inputs, outputs] : std::vector<std::array<int64_t, 3>>{
           {1, 1, 1}, {1, 5, 3}, {7, 33, 17}, {64, 128, 96}, {300, 600, 520}}) {
    SCOPED_TRACE(testing::Message() << tokens << " x " << inputs << " -> " << outputs);
    const at::Tensor x = Leaf(Rounded(numbers.Normal({tokens, inputs}), type));
    const at::Tensor weight = Leaf(Rounded(numbers.Normal({outputs, inputs}), type));
    const at::Tensor grad_y = Rounded(numbers.Normal({tokens, outputs}), type);
    const at::Tensor expected = at::mm(x, weight.t());
    expected.backward(grad_y);

    const at::Tensor x_t = x.detach().to(type);
    const at::Tensor weight_t = weight.detach().to(type);
    const at::Tensor grad_y_t = grad_y.to(type);
    // Of bfloat16 operands, an output may be of float as well.
    for (const at::ScalarType out : {type, StatisticsOf(type)}) {
      Work work;
      at::Tensor y = FilledWithNan({tokens, outputs}, out);
      at::Tensor grad_x = FilledWithNan({tokens, inputs}, out);
      at::Tensor grad_weight = FilledWithNan({outputs, inputs}, out);
      const void* memory = grad_weight.const_data_ptr();
      Ops().Linear(x_t, weight_t, {}, y, work)();
      Ops().LinearBackwardInput(grad_y_t, weight_t, /*add=*/false, grad_x, work)();
      Ops().LinearBackwardWeight(grad_y_t, x_t, /*add=*/false, grad_weight, work)();
      const at::Tensor residual = Rounded(numbers.Normal({tokens, outputs}), out).to(out);
      at::Tensor sum = FilledWithNan({tokens, outputs}, out);
      Ops().Linear(x_t, weight_t, residual, sum, work)();
      EXPECT_TRUE(SameBits(sum, y + residual));
      EXPECT_LE(RelativeError(y, expected), Tolerance(out));
      EXPECT_LE(RelativeError(grad_x, x.grad()), Tolerance(out));
      EXPECT_LE(RelativeError(grad_weight, weight.grad()), Tolerance(out));

      Ops().LinearBackwardWeight(grad_y_t, x_t, /*add=*/true, grad_weight, work)();
      EXPECT_LE(RelativeError(grad_weight, weight.grad() * 2), 1.5 * Tolerance(out));  // rounded twice
      EXPECT_EQ(grad_weight.const_data_ptr(), memory);
      Ops().LinearBackwardInput(grad_y_t, weight_t, /*add=*/true, grad_x, work)();
      EXPECT_LE(RelativeError(grad_x, x.grad() * 2), 1.5 * Tolerance(out));
    }
  }
}

TEST_P(LinearTest, MultipliesByAFactor) {
  const at::ScalarType type = GetParam();
  Numbers numbers(13);
  constexpr double kFactor = 0.22;
  const at::Tensor x = Rounded(numbers.Normal({64, 128}), type);
  const at::Tensor weight = Rounded(numbers.Normal({96, 128}), type);
  const at::Tensor grad_y = Rounded(numbers.Normal({64, 96}), type);
  const at::Tensor residual = Rounded(numbers.Normal({64, 96}), type);
  for (const at::ScalarType out : {type, StatisticsOf(type)}) {
    Work work;
    at::Tensor y = FilledWithNan({64, 96}, out);
    Ops().Linear(x.to(type), weight.to(type), residual.to(out), y, work, kFactor)();
    EXPECT_LE(RelativeError(y, residual + kFactor * at::mm(x, weight.t())), 1.5 * Tolerance(out));
    for (const bool add : {false, true}) {
      at::Tensor grad_x =
          add ? x.to(out, /*non_blocking=*/false, /*copy=*/true) : FilledWithNan({64, 128}, out);
      Ops().LinearBackwardInput(grad_y.to(type), weight.to(type), add, grad_x, work, kFactor)();
      EXPECT_LE(RelativeError(grad_x, (add ? 1 : 0) * x + kFactor * at::mm(grad_y, weight)), Tolerance(out));
      at::Tensor grad_weight =
          add ? weight.to(out, /*non_blocking=*/false, /*copy=*/true) : FilledWithNan({96, 128}, out);
      Ops().LinearBackwardWeight(grad_y.to(type), x.to(type), add, grad_weight, work, kFactor)();
      EXPECT_LE(RelativeError(grad_weight, (add ? 1 : 0) * weight + kFactor * at::mm(grad_y.t(), x)),
                Tolerance(out));
    }
  }
}

TEST_P(LinearTest, TakesViewsOfLargerMatrices) {
  const at::ScalarType type = GetParam();
  Numbers numbers(12);
  constexpr int64_t kBefore = 4;
  constexpr int64_t kBehind = 6;
  const auto view = [](const at::Tensor& wide) {
    return wide.narrow(1, kBefore, wide.size(1) - kBefore - kBehind);
  };
  const auto random = [&](int64_t rows, int64_t columns) {
    return view(numbers.Normal({rows, columns + kBefore + kBehind}).to(type));
  };
  const auto unset = [&](int64_t rows, int64_t columns) {
    return FilledWithNan({rows, columns + kBefore + kBehind}, type);
  };
  const auto expect = [&](const at::Tensor& wide, const at::Tensor& expected, double slack) {
    EXPECT_LE(RelativeError(view(wide), expected), slack * Tolerance(type));
    EXPECT_TRUE(wide.narrow(1, 0, kBefore).isnan().all().item<bool>());
    EXPECT_TRUE(wide.narrow(1, wide.size(1) - kBehind, kBehind).isnan().all().item<bool>());
  };
  const at::Tensor x = random(9, 16);
  const at::Tensor weight = random(6, 16);
  const at::Tensor grad_y = random(9, 6);
  const at::Tensor wide_y = unset(9, 6);
  const at::Tensor wide_grad_x = unset(9, 16);
  const at::Tensor wide_grad_weight = unset(6, 16);
  at::Tensor y = view(wide_y);
  at::Tensor grad_x = view(wide_grad_x);
  at::Tensor grad_weight = view(wide_grad_weight);
  const at::Tensor x_d = x.to(at::kDouble);
  const at::Tensor weight_d = weight.to(at::kDouble);
  const at::Tensor grad_y_d = grad_y.to(at::kDouble);
  Work work;
  Ops().Linear(x, weight, {}, y, work)();
  expect(wide_y, at::mm(x_d, weight_d.t()), 1);
  for (const bool add : {false, true}) {
    const double times = add ? 2 : 1;
    const double slack = add ? 1.5 : 1;  // rounded twice
    Ops().LinearBackwardInput(grad_y, weight, add, grad_x, work)();
    Ops().LinearBackwardWeight(grad_y, x, add, grad_weight, work)();
    expect(wide_grad_x, at::mm(grad_y_d, weight_d) * times, slack);
    expect(wide_grad_weight, at::mm(grad_y_d.t(), x_d) * times, slack);
  }
}

// The bits must depend on the shape alone: buffers have other addresses for another number of ranks.
TEST_P(LinearTest, SameBitsAtEveryAlignedAddress) {
  const at::ScalarType type = GetParam();
  Numbers numbers(13);
  Work work;
  const int64_t line = 64 / static_cast<int64_t>(c10::elementSize(type));
  const at::Tensor memory = FilledWithNan({1 << 20}, type);
  const int64_t base =
      line - reinterpret_cast<uintptr_t>(memory.const_data_ptr()) % 64 / memory.element_size();
  for (const auto& [tokens, inputs, outputs] :
       std::vector<std::array<int64_t, 3>>{{1, 64, 192}, {37, 24, 15}, {128, 64, 320}, {256, 128, 384}}) {
    SCOPED_TRACE(testing::Message() << tokens << " x " << inputs << " -> " << outputs);
    const at::Tensor x = numbers.Normal({tokens, inputs}).to(type);
    const at::Tensor weight = numbers.Normal({outputs, inputs}).to(type);
    const at::Tensor grad_y = numbers.Normal({tokens, outputs}).to(type);
    std::vector<at::Tensor> first;
    for (const int64_t lines : {0, 1, 2, 3, 5, 17, 63}) {
      int64_t at = base;
      const auto place = [&](const std::vector<int64_t>& shape, const at::Tensor& values) {
        at += lines * line;
        at::Tensor tensor = memory.narrow(0, at, shape[0] * shape[1]).view(shape);
        at += (tensor.numel() + line - 1) / line * line;
        return values.defined() ? tensor.copy_(values) : tensor;
      };
      const at::Tensor x_t = place({tokens, inputs}, x);
      const at::Tensor weight_t = place({outputs, inputs}, weight);
      const at::Tensor grad_y_t = place({tokens, outputs}, grad_y);
      at::Tensor y = place({tokens, outputs}, {});
      at::Tensor grad_x = place({tokens, inputs}, {});
      at::Tensor grad_weight = place({outputs, inputs}, {});
      Ops().Linear(x_t, weight_t, {}, y, work)();
      Ops().LinearBackwardInput(grad_y_t, weight_t, /*add=*/false, grad_x, work)();
      Ops().LinearBackwardWeight(grad_y_t, x_t, /*add=*/false, grad_weight, work)();
      at::Tensor added = grad_weight.clone();
      Ops().LinearBackwardWeight(grad_y_t, x_t, /*add=*/true, added, work)();
      const std::vector<at::Tensor> results = {y.clone(), grad_x.clone(), grad_weight.clone(), added};
      first = first.empty() ? results : first;
      for (size_t i = 0; i < results.size(); ++i) {
        EXPECT_TRUE(SameBits(results[i], first[i])) << "result " << i << " at " << lines << " lines";
      }
    }
  }
}

TEST_P(LinearTest, RefusesAnOutputOfAnotherShape) {
  at::Tensor y = FilledWithNan({2, 5}, GetParam());
  const at::Tensor x = FilledWithNan({2, 3}, GetParam());
  EXPECT_THROW(Ops().Linear(x, FilledWithNan({4, 3}, GetParam()), {}, y, {})(), std::invalid_argument);
}

TEST_P(LinearTest, RefusesAnOutputOfAnotherType) {
  const at::ScalarType other = GetParam() == at::kDouble ? at::kFloat : at::kDouble;
  at::Tensor grad_weight = FilledWithNan({4, 3}, other);
  EXPECT_THROW(
      Ops().LinearBackwardWeight(FilledWithNan({2, 4}, GetParam()), FilledWithNan({2, 3}, GetParam()),
                                 /*add=*/true, grad_weight, {})(),
      std::invalid_argument);
}

TEST(LinearBf16Test, RefusesTooLittleWorkMemory) {
  at::Tensor y = FilledWithNan({2, 4}, at::kBFloat16);
  EXPECT_THROW(
      Ops().Linear(FilledWithNan({2, 3}, at::kBFloat16), FilledWithNan({4, 3}, at::kBFloat16), {}, y, {})(),
      std::invalid_argument);
}

}  // namespace
}  // namespace tandem::ops
