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

class SwiGluTest : public AgainstAutogradTest {};
INSTANTIATE_TEST_SUITE_P(Types, SwiGluTest, AllTypes());

TEST_P(SwiGluTest, MatchesAutograd) {
  for (const auto& [rows, inner] :
       std::vector<std::array<int64_t, 2>>{{1, 1}, {3, 5}, {4, 16}, {9, 43}, {8, 320}}) {
    SCOPED_TRACE(testing::Message() << rows << " x " << inner);
    const at::Tensor gate_up = RandomLeaf({rows, 2 * inner}, 4);
    const at::Tensor grad = Random({rows, inner});
    const at::Tensor expected = at::silu(gate_up.narrow(1, 0, inner)) * gate_up.narrow(1, inner, inner);
    expected.backward(grad);

    const at::Tensor gate_up_t = Typed(gate_up);
    at::Tensor activated = Nan({rows, inner});
    ops_.SwiGlu(gate_up_t, activated)();
    EXPECT_TRUE(Near(activated, expected));

    at::Tensor in_place = Typed(grad);
    at::Tensor grad_gate_up = Nan({rows, 2 * inner});
    ops_.SwiGluBackward(gate_up_t, in_place, grad_gate_up, in_place)();
    EXPECT_TRUE(Near(grad_gate_up, gate_up.grad()));
    EXPECT_TRUE(SameBits(in_place, activated));
  }
}

TEST_P(SwiGluTest, WeightedRowsMatchAutograd) {
  for (const auto& [rows, inner] : std::vector<std::array<int64_t, 2>>{{0, 8}, {1, 1}, {4, 16}, {9, 43}}) {
    SCOPED_TRACE(testing::Message() << rows << " x " << inner);
    const at::Tensor gate_up = RandomLeaf({rows, 2 * inner}, 4);
    const at::Tensor begins = at::tensor({int64_t{0}, int64_t{0}, rows}, at::kLong);
    const at::Tensor weights = StatisticsLeaf({rows});
    const at::Tensor grad = Random({rows, inner});
    const at::Tensor expected =
        at::silu(gate_up.narrow(1, 0, inner)) * gate_up.narrow(1, inner, inner) * weights.unsqueeze(1);
    expected.backward(grad);

    const at::Tensor gate_up_t = Typed(gate_up);
    const at::Tensor weights_t = TypedStatistics(weights);
    at::Tensor activated = Nan({rows, inner});
    ops_.SwiGlu(gate_up_t, activated, weights_t, begins)();
    at::Tensor in_place = Typed(grad);
    at::Tensor grad_gate_up = Nan({rows, 2 * inner});
    at::Tensor grad_weights = NanStatistics({rows});
    ops_.SwiGluBackward(gate_up_t, in_place, grad_gate_up, in_place, weights_t, grad_weights, begins)();
    EXPECT_TRUE(SameBits(in_place, activated));
    at::Tensor of_all = Nan({rows, inner});
    ops_.SwiGlu(gate_up_t, of_all, weights_t)();
    EXPECT_TRUE(SameBits(of_all, activated));
    if (rows > 0) {
      EXPECT_TRUE(Near(activated, expected));
      EXPECT_TRUE(Near(grad_gate_up, gate_up.grad()));
      EXPECT_LE(RelativeError(grad_weights, weights.grad()), Tolerance(StatisticsOf(type_)));
    }
  }
}

TEST_P(SwiGluTest, ExtremeGatesSaturateAndNanStaysNan) {
  at::Tensor gate_up = Nan({1, 10});
  const double infinity = std::numeric_limits<double>::infinity();
  const double gates[] = {-8192, 8192, 0, -60, infinity};
  for (int i = 0; i < 5; ++i) {
    gate_up[0][i] = gates[i];
    gate_up[0][5 + i] = 1.0;
  }
  at::Tensor activated = Nan({1, 5});
  ops_.SwiGlu(gate_up, activated)();
  EXPECT_NEAR(activated[0][0].item<double>(), 0, 1e-30);
  EXPECT_EQ(activated[0][1].item<double>(), 8192);
  EXPECT_EQ(activated[0][2].item<double>(), 0);
  EXPECT_LT(activated[0][3].item<double>(), 0);
  EXPECT_EQ(activated[0][4].item<double>(), infinity);
  gate_up[0][2] = std::numeric_limits<double>::quiet_NaN();
  ops_.SwiGlu(gate_up, activated)();
  EXPECT_TRUE(activated[0][2].isnan().item<bool>());
}

}  // namespace
}  // namespace tandem::ops
