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

class LinearTest : public AgainstAutogradTest {
 protected:
  const WorkMemory work_{kTileBytes, at::kCPU};
};
INSTANTIATE_TEST_SUITE_P(Types, LinearTest, AllTypes());

TEST_P(LinearTest, MatchesAutograd) {
  for (const auto& [tokens, inputs, outputs] : std::vector<std::array<int64_t, 3>>{
           {1, 1, 1}, {1, 5, 3}, {7, 33, 17}, {64, 128, 96}, {300, 600, 520}}) {
    SCOPED_TRACE(testing::Message() << tokens << " x " << inputs << " -> " << outputs);
    const at::Tensor x = RandomLeaf({tokens, inputs});
    const at::Tensor weight = RandomLeaf({outputs, inputs});
    const at::Tensor grad_y = Random({tokens, outputs});
    const at::Tensor expected = at::mm(x, weight.t());
    expected.backward(grad_y);

    const at::Tensor x_t = Typed(x);
    const at::Tensor weight_t = Typed(weight);
    const at::Tensor grad_y_t = grad_y.to(type_);
    // Of bfloat16 operands, an output may be of float as well.
    for (const at::ScalarType out : {type_, StatisticsOf(type_)}) {
      at::Tensor y = FilledWithNan({tokens, outputs}, out);
      at::Tensor grad_x = FilledWithNan({tokens, inputs}, out);
      at::Tensor grad_weight = FilledWithNan({outputs, inputs}, out);
      const void* memory = grad_weight.const_data_ptr();
      ops_.Linear(x_t, weight_t, {}, y, work_)();
      ops_.LinearBackwardInput(grad_y_t, weight_t, /*add=*/false, grad_x, work_)();
      ops_.LinearBackwardWeight(grad_y_t, x_t, /*add=*/false, grad_weight, work_)();
      const at::Tensor residual = Rounded(numbers_.Normal({tokens, outputs}), out).to(out);
      at::Tensor sum = FilledWithNan({tokens, outputs}, out);
      ops_.Linear(x_t, weight_t, residual, sum, work_)();
      EXPECT_TRUE(SameBits(sum, y + residual));
      EXPECT_LE(RelativeError(y, expected), Tolerance(out));
      EXPECT_LE(RelativeError(grad_x, x.grad()), Tolerance(out));
      EXPECT_LE(RelativeError(grad_weight, weight.grad()), Tolerance(out));

      ops_.LinearBackwardWeight(grad_y_t, x_t, /*add=*/true, grad_weight, work_)();
      EXPECT_LE(RelativeError(grad_weight, weight.grad() * 2), 1.5 * Tolerance(out));  // rounded twice
      EXPECT_EQ(grad_weight.const_data_ptr(), memory);
      ops_.LinearBackwardInput(grad_y_t, weight_t, /*add=*/true, grad_x, work_)();
      EXPECT_LE(RelativeError(grad_x, x.grad() * 2), 1.5 * Tolerance(out));
    }
  }
}

TEST_P(LinearTest, MultipliesByAFactor) {
  constexpr double kFactor = 0.22;
  const at::Tensor x = Random({64, 128});
  const at::Tensor weight = Random({96, 128});
  const at::Tensor grad_y = Random({64, 96});
  const at::Tensor residual = Random({64, 96});
  for (const at::ScalarType out : {type_, StatisticsOf(type_)}) {
    at::Tensor y = FilledWithNan({64, 96}, out);
    ops_.Linear(x.to(type_), weight.to(type_), residual.to(out), y, work_, kFactor)();
    EXPECT_LE(RelativeError(y, residual + kFactor * at::mm(x, weight.t())), 1.5 * Tolerance(out));
    for (const bool add : {false, true}) {
      at::Tensor grad_x =
          add ? x.to(out, /*non_blocking=*/false, /*copy=*/true) : FilledWithNan({64, 128}, out);
      ops_.LinearBackwardInput(grad_y.to(type_), weight.to(type_), add, grad_x, work_, kFactor)();
      EXPECT_LE(RelativeError(grad_x, (add ? 1 : 0) * x + kFactor * at::mm(grad_y, weight)), Tolerance(out));
      at::Tensor grad_weight =
          add ? weight.to(out, /*non_blocking=*/false, /*copy=*/true) : FilledWithNan({96, 128}, out);
      ops_.LinearBackwardWeight(grad_y.to(type_), x.to(type_), add, grad_weight, work_, kFactor)();
      EXPECT_LE(RelativeError(grad_weight, (add ? 1 : 0) * weight + kFactor * at::mm(grad_y.t(), x)),
                Tolerance(out));
    }
  }
}

TEST_P(LinearTest, TakesViewsOfLargerMatrices) {
  constexpr int64_t kBefore = 4;
  constexpr int64_t kBehind = 6;
  const auto view = [](const at::Tensor& wide) {
    return wide.narrow(1, kBefore, wide.size(1) - kBefore - kBehind);
  };
  const auto random = [&](int64_t rows, int64_t columns) {
    return view(numbers_.Normal({rows, columns + kBefore + kBehind}).to(type_));
  };
  const auto unset = [&](int64_t rows, int64_t columns) { return Nan({rows, columns + kBefore + kBehind}); };
  const auto expect = [&](const at::Tensor& wide, const at::Tensor& expected, double slack) {
    EXPECT_TRUE(Near(view(wide), expected, slack));
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
  ops_.Linear(x, weight, {}, y, work_)();
  expect(wide_y, at::mm(x_d, weight_d.t()), 1);
  for (const bool add : {false, true}) {
    const double times = add ? 2 : 1;
    const double slack = add ? 1.5 : 1;  // rounded twice
    ops_.LinearBackwardInput(grad_y, weight, add, grad_x, work_)();
    ops_.LinearBackwardWeight(grad_y, x, add, grad_weight, work_)();
    expect(wide_grad_x, at::mm(grad_y_d, weight_d) * times, slack);
    expect(wide_grad_weight, at::mm(grad_y_d.t(), x_d) * times, slack);
  }
}

// The bits must depend on the shape alone: buffers have other addresses for another number of ranks.
TEST_P(LinearTest, SameBitsAtEveryAlignedAddress) {
  const int64_t line = 64 / static_cast<int64_t>(c10::elementSize(type_));
  const at::Tensor memory = Nan({1 << 20});
  const int64_t base =
      line - reinterpret_cast<uintptr_t>(memory.const_data_ptr()) % 64 / memory.element_size();
  for (const auto& [tokens, inputs, outputs] :
       std::vector<std::array<int64_t, 3>>{{1, 64, 192}, {37, 24, 15}, {128, 64, 320}, {256, 128, 384}}) {
    SCOPED_TRACE(testing::Message() << tokens << " x " << inputs << " -> " << outputs);
    const at::Tensor x = numbers_.Normal({tokens, inputs}).to(type_);
    const at::Tensor weight = numbers_.Normal({outputs, inputs}).to(type_);
    const at::Tensor grad_y = numbers_.Normal({tokens, outputs}).to(type_);
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
      ops_.Linear(x_t, weight_t, {}, y, work_)();
      ops_.LinearBackwardInput(grad_y_t, weight_t, /*add=*/false, grad_x, work_)();
      ops_.LinearBackwardWeight(grad_y_t, x_t, /*add=*/false, grad_weight, work_)();
      at::Tensor added = grad_weight.clone();
      ops_.LinearBackwardWeight(grad_y_t, x_t, /*add=*/true, added, work_)();
      const std::vector<at::Tensor> results = {y.clone(), grad_x.clone(), grad_weight.clone(), added};
      first = first.empty() ? results : first;
      for (size_t i = 0; i < results.size(); ++i) {
        EXPECT_TRUE(SameBits(results[i], first[i])) << "result " << i << " at " << lines << " lines";
      }
    }
  }
}

TEST_P(LinearTest, RefusesAnOutputOfAnotherShape) {
  at::Tensor y = Nan({2, 5});
  const at::Tensor x = Nan({2, 3});
  EXPECT_THROW(ops_.Linear(x, Nan({4, 3}), {}, y, {})(), std::invalid_argument);
}

TEST_P(LinearTest, RefusesAnOutputOfAnotherType) {
  const at::ScalarType other = type_ == at::kDouble ? at::kFloat : at::kDouble;
  at::Tensor grad_weight = FilledWithNan({4, 3}, other);
  EXPECT_THROW(ops_.LinearBackwardWeight(Nan({2, 4}), Nan({2, 3}),
                                         /*add=*/true, grad_weight, {})(),
               std::invalid_argument);
}

TEST(LinearBf16Test, RefusesTooLittleWorkMemory) {
  at::Tensor y = FilledWithNan({2, 4}, at::kBFloat16);
  EXPECT_THROW(CpuOperations().Linear(FilledWithNan({2, 3}, at::kBFloat16),
                                      FilledWithNan({4, 3}, at::kBFloat16), {}, y, {})(),
               std::invalid_argument);
}

}  // namespace
}  // namespace tandem::ops
