// SPDX-License-Identifier: Apache-2.0
#include "ops/swiglu.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include <limits>

#include "ops/operations.h"
#include "tests/ops/compare.h"

namespace tandem::ops {
namespace {

using namespace test;

class SwiGluTest : public testing::TestWithParam<at::ScalarType> {};
INSTANTIATE_TEST_SUITE_P(Types, SwiGluTest, AllTypes());

TEST_P(SwiGluTest, MatchesAutograd) {
  const at::ScalarType type = GetParam();
  Numbers numbers(51);
  for (const auto& [rows, inner] :
       std::vector<std::array<int64_t, 2>>{{1, 1}, {3, 5}, {4, 16}, {9, 43}, {8, 320}}) {
    SCOPED_TRACE(testing::Message() << rows << " x " << inner);
    const at::Tensor gate_up = Leaf(Rounded(numbers.Normal({rows, 2 * inner}) * 4, type));
    const at::Tensor grad = Rounded(numbers.Normal({rows, inner}), type);
    const at::Tensor expected = at::silu(gate_up.narrow(1, 0, inner)) * gate_up.narrow(1, inner, inner);
    expected.backward(grad);

    const at::Tensor gate_up_t = gate_up.detach().to(type);
    at::Tensor activated = FilledWithNan({rows, inner}, type);
    CpuOperations().SwiGlu(gate_up_t, activated)();
    EXPECT_LE(RelativeError(activated, expected), Tolerance(type));

    at::Tensor in_place = grad.to(type, /*non_blocking=*/false, /*copy=*/true);
    at::Tensor grad_gate_up = FilledWithNan({rows, 2 * inner}, type);
    CpuOperations().SwiGluBackward(gate_up_t, in_place, grad_gate_up, in_place)();
    EXPECT_LE(RelativeError(grad_gate_up, gate_up.grad()), Tolerance(type));
    EXPECT_TRUE(SameBits(in_place, activated));
  }
}

TEST_P(SwiGluTest, WeightedRowsMatchAutograd) {
  const at::ScalarType type = GetParam();
  Numbers numbers(52);
  for (const auto& [rows, inner] : std::vector<std::array<int64_t, 2>>{{0, 8}, {1, 1}, {4, 16}, {9, 43}}) {
    SCOPED_TRACE(testing::Message() << rows << " x " << inner);
    const at::Tensor gate_up = Leaf(Rounded(numbers.Normal({rows, 2 * inner}) * 4, type));
    const at::Tensor begins = at::tensor({int64_t{0}, int64_t{0}, rows}, at::kLong);
    const at::Tensor weights = Leaf(Rounded(numbers.Normal({rows}), StatisticsOf(type)));
    const at::Tensor grad = Rounded(numbers.Normal({rows, inner}), type);
    const at::Tensor expected =
        at::silu(gate_up.narrow(1, 0, inner)) * gate_up.narrow(1, inner, inner) * weights.unsqueeze(1);
    expected.backward(grad);

    const at::Tensor gate_up_t = gate_up.detach().to(type);
    const at::Tensor weights_t = weights.detach().to(StatisticsOf(type));
    at::Tensor activated = FilledWithNan({rows, inner}, type);
    CpuOperations().sparse().WeightedSwiGlu(begins, gate_up_t, weights_t, activated)();
    at::Tensor in_place = grad.to(type, /*non_blocking=*/false, /*copy=*/true);
    at::Tensor grad_gate_up = FilledWithNan({rows, 2 * inner}, type);
    at::Tensor grad_weights = FilledWithNan({rows}, StatisticsOf(type));
    CpuOperations().sparse().WeightedSwiGluBackward(begins, gate_up_t, weights_t, in_place, grad_gate_up,
                                                    in_place, grad_weights)();
    EXPECT_TRUE(SameBits(in_place, activated));
    at::Tensor of_all = FilledWithNan({rows, inner}, type);
    CpuOperations().sparse().WeightedSwiGlu(/*begins=*/{}, gate_up_t, weights_t, of_all)();
    EXPECT_TRUE(SameBits(of_all, activated));
    if (rows > 0) {
      EXPECT_LE(RelativeError(activated, expected), Tolerance(type));
      EXPECT_LE(RelativeError(grad_gate_up, gate_up.grad()), Tolerance(type));
      EXPECT_LE(RelativeError(grad_weights, weights.grad()), Tolerance(StatisticsOf(type)));
    }
  }
}

TEST_P(SwiGluTest, ExtremeGatesSaturateAndNanStaysNan) {
  at::Tensor gate_up = FilledWithNan({1, 10}, GetParam());
  const double infinity = std::numeric_limits<double>::infinity();
  const double gates[] = {-8192, 8192, 0, -60, infinity};
  for (int i = 0; i < 5; ++i) {
    gate_up[0][i] = gates[i];
    gate_up[0][5 + i] = 1.0;
  }
  at::Tensor activated = FilledWithNan({1, 5}, GetParam());
  CpuOperations().SwiGlu(gate_up, activated)();
  EXPECT_NEAR(activated[0][0].item<double>(), 0, 1e-30);
  EXPECT_EQ(activated[0][1].item<double>(), 8192);
  EXPECT_EQ(activated[0][2].item<double>(), 0);
  EXPECT_LT(activated[0][3].item<double>(), 0);
  EXPECT_EQ(activated[0][4].item<double>(), infinity);
  gate_up[0][2] = std::numeric_limits<double>::quiet_NaN();
  CpuOperations().SwiGlu(gate_up, activated)();
  EXPECT_TRUE(activated[0][2].isnan().item<bool>());
}

}  // namespace
}  // namespace tandem::ops
