// SPDX-License-Identifier: Apache-2.0
#include "ops/gated_norm.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <tuple>
#include <vector>

#include "ops/operations.h"
#include "ops/squared_relu.h"
#include "tests/ops/compare.h"

namespace tandem::ops {
namespace {

using namespace test;

class GatedNormTest : public AgainstAutogradTest {};
INSTANTIATE_TEST_SUITE_P(Types, GatedNormTest, AllTypes());

TEST_P(GatedNormTest, MatchesAutograd) {
  const double epsilon = 1e-5;
  for (const auto& [rows, columns, groups] :
       std::vector<std::tuple<int64_t, int64_t, int64_t>>{{5, 12, 1}, {3, 12, 4}, {4, 66, 2}, {2, 9, 3}}) {
    SCOPED_TRACE(testing::Message() << columns << " columns in " << groups << " groups");
    const at::Tensor y = RandomLeaf({rows, columns});
    const at::Tensor gate = RandomLeaf({rows, columns});
    const at::Tensor weight = RandomLeaf({columns});
    const at::Tensor grad = Random({rows, columns});
    const at::Tensor gated = (y * at::silu(gate)).view({rows, groups, columns / groups});
    const at::Tensor expected =
        (gated * (gated.square().mean(-1, true) + epsilon).rsqrt()).view({rows, columns}) * weight;
    expected.backward(grad);

    const at::Tensor wide = Nan({rows, columns + 4});
    wide.narrow(1, 1, columns).copy_(gate.detach());
    const at::Tensor own_y = Typed(y);
    const at::Tensor own_weight = Typed(weight);
    at::Tensor normed = Nan({rows, columns});
    ops_.GatedNorm(own_y, wide.narrow(1, 1, columns), own_weight, groups, epsilon, normed)();
    EXPECT_TRUE(Near(normed, expected));

    at::Tensor grad_y = Nan({rows, columns});
    at::Tensor grad_wide = Nan({rows, columns + 1});
    at::Tensor grad_weight = NanStatistics({columns});
    ops_.GatedNormBackward(grad.to(type_), own_y, wide.narrow(1, 1, columns), own_weight, groups, epsilon,
                           grad_y, grad_wide.narrow(1, 1, columns), grad_weight, {})();
    EXPECT_TRUE(Near(grad_y, y.grad()));
    EXPECT_TRUE(Near(grad_wide.narrow(1, 1, columns), gate.grad()));
    EXPECT_TRUE(Near(grad_weight, weight.grad()));
    EXPECT_TRUE(grad_wide.narrow(1, 0, 1).isnan().all().item<bool>()) << "another's column was written";
  }
}

TEST(GatedNormRefusalTest, GroupsAreEqualPartsOfARow) {
  at::Tensor y = at::zeros({2, 6});
  EXPECT_THROW(CpuOperations().GatedNorm(y, y, at::zeros({6}), 4, 1e-5, y), std::invalid_argument);
}

class SquaredReluTest : public AgainstAutogradTest {};
INSTANTIATE_TEST_SUITE_P(Types, SquaredReluTest, AllTypes());

TEST_P(SquaredReluTest, MatchesAutograd) {
  const at::Tensor up = RandomLeaf({3, 37});
  const at::Tensor grad = Random({3, 37});
  const at::Tensor expected = up.relu().square();
  expected.backward(grad);
  const at::Tensor own = Typed(up);
  at::Tensor activated = Nan({3, 37});
  ops_.SquaredRelu(own, activated)();
  EXPECT_TRUE(Near(activated, expected));
  at::Tensor grad_up = Nan({3, 37});
  at::Tensor both = grad.to(type_);  // first the activation's gradient, then the activation
  ops_.SquaredReluBackward(own, both, grad_up, both)();
  EXPECT_TRUE(Near(grad_up, up.grad()));
  EXPECT_TRUE(both.equal(activated));
}

}  // namespace
}  // namespace tandem::ops
