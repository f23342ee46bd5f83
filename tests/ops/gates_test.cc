// SPDX-License-Identifier: Apache-2.0
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/mv.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <array>
#include <vector>

#include "ops/operations.h"
#include "tests/ops/compare.h"

namespace tandem::ops {
namespace {

using namespace test;

class GatesTest : public AgainstAutogradTest {};
INSTANTIATE_TEST_SUITE_P(Types, GatesTest, AllTypes());

TEST_P(GatesTest, OutputGatesMatchAutogradAndWriteTheirColumns) {
  for (const auto& [tokens, heads, head_dim] :
       std::vector<std::array<int64_t, 3>>{{1, 1, 2}, {5, 3, 6}, {9, 4, 37}}) {
    SCOPED_TRACE(testing::Message() << tokens << " tokens, " << heads << " heads of " << head_dim);
    const int64_t columns = heads * head_dim;
    const at::Tensor context = RandomLeaf({tokens, columns});
    const at::Tensor gate = RandomLeaf({tokens, heads, head_dim}, 4);
    const at::Tensor grad = Random({tokens, columns});
    const at::Tensor expected = context * at::sigmoid(gate).view({tokens, columns});
    expected.backward(grad);

    const auto gates_in = [&, h = heads, d = head_dim](const at::Tensor& qkv) {
      return qkv.narrow(1, 0, 2 * columns).view({tokens, h, 2, d}).select(2, 1);
    };
    at::Tensor qkv = Nan({tokens, 2 * columns + 3});
    gates_in(qkv).copy_(gate.detach());
    at::Tensor grad_qkv = Nan({tokens, 2 * columns + 3});
    at::Tensor gated = Nan({tokens, columns});
    at::Tensor again = Nan({tokens, columns});
    at::Tensor in_place = Typed(grad);
    const at::Tensor context_t = Typed(context);
    ops_.OutputGate(context_t, qkv, heads, gated)();
    ops_.OutputGateBackward(in_place, context_t, qkv, heads, again, in_place, grad_qkv)();
    EXPECT_TRUE(Near(gated, expected));
    EXPECT_TRUE(SameBits(again, gated));
    EXPECT_TRUE(Near(in_place, context.grad()));
    EXPECT_TRUE(Near(gates_in(grad_qkv), gate.grad()));
    EXPECT_EQ(grad_qkv.isnan().sum().item<int64_t>(), tokens * (columns + 3)) << "other columns";
  }
}

TEST_P(GatesTest, ATokenGateMatchesAutograd) {
  const at::ScalarType statistics = StatisticsOf(type_);
  for (const auto& [rows, columns] : std::vector<std::array<int64_t, 2>>{{1, 1}, {5, 16}, {40, 37}}) {
    SCOPED_TRACE(testing::Message() << rows << " x " << columns);
    const at::Tensor x = RandomLeaf({rows, columns});
    const at::Tensor weight = RandomLeaf({columns});
    const at::Tensor before = Random({rows, columns});
    const at::Tensor grad = Rounded(numbers_.Normal({rows}), statistics);
    const at::Tensor expected = at::sigmoid(at::mv(x, weight));
    expected.backward(grad);

    const at::Tensor x_t = Typed(x);
    const at::Tensor weight_t = Typed(weight);
    at::Tensor gates = FilledWithNan({rows}, statistics);
    at::Tensor grad_x = Typed(before);
    at::Tensor grad_weight = FilledWithNan({columns}, statistics);
    ops_.TokenGate(x_t, weight_t, gates)();
    EXPECT_LE(RelativeError(gates, expected), Tolerance(statistics));
    for (const bool add : {false, true}) {
      grad_x = Typed(before);
      ops_.TokenGateBackward(grad.to(statistics), x_t, weight_t, gates, grad_x, add, grad_weight, {})();
      EXPECT_TRUE(Near(grad_x, before + x.grad()));
      EXPECT_LE(RelativeError(grad_weight, weight.grad() * (add ? 2 : 1)), Tolerance(statistics));
    }
    at::Tensor alone = Typed(before);  // of a weight that is frozen
    ops_.TokenGateBackward(grad.to(statistics), x_t, weight_t, gates, alone, false, at::Tensor(), {})();
    EXPECT_TRUE(SameBits(alone, grad_x));
  }
}

TEST(GatesRefusalTest, AQkvWithoutGatesIsRefused) {
  const at::Tensor context = at::zeros({4, 6});
  EXPECT_THROW(CpuOperations().OutputGate(context, at::zeros({4, 11}), 2, context), std::invalid_argument);
}

}  // namespace
}  // namespace tandem::ops
