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

class GatedNormTest : public testing::TestWithParam<at::ScalarType> {};
INSTANTIATE_TEST_SUITE_P(Types, GatedNormTest, AllTypes());

TEST_P(GatedNormTest, MatchesAutograd) {
  const at::ScalarType type = GetParam();
  Numbers numbers(67);
  const double epsilon = 1e-5;
  for (const auto& [rows, columns, groups] :
       std::vector<std::tuple<int64_t, int64_t, int64_t>>{{5, 12, 1}, {3, 12, 4}, {4, 66, 2}, {2, 9, 3}}) {
    SCOPED_TRACE(testing::Message() << columns << " columns in " << groups << " groups");
    const auto random = [&](const std::vector<int64_t>& shape) {
      return Leaf(Rounded(numbers.Normal(shape), type));
    };
    const at::Tensor y = random({rows, columns});
    const at::Tensor gate = random({rows, columns});
    const at::Tensor weight = random({columns});
    const at::Tensor grad = Rounded(numbers.Normal({rows, columns}), type);
    const at::Tensor gated = (y * at::silu(gate)).view({rows, groups, columns / groups});
    const at::Tensor expected =
        (gated * (gated.square().mean(-1, true) + epsilon).rsqrt()).view({rows, columns}) * weight;
    expected.backward(grad);

    const Operations& ops = CpuOperations();
    const at::Tensor wide = FilledWithNan({rows, columns + 4}, type);
    wide.narrow(1, 1, columns).copy_(gate.detach());
    const at::Tensor own_y = y.detach().to(type);
    const at::Tensor own_weight = weight.detach().to(type);
    at::Tensor normed = FilledWithNan({rows, columns}, type);
    ops.GatedNorm(own_y, wide.narrow(1, 1, columns), own_weight, groups, epsilon, normed)();
    EXPECT_LE(RelativeError(normed, expected), Tolerance(type));

    at::Tensor grad_y = FilledWithNan({rows, columns}, type);
    at::Tensor grad_wide = FilledWithNan({rows, columns + 1}, type);
    at::Tensor grad_weight = FilledWithNan({columns}, StatisticsOf(type));
    ops.GatedNormBackward(grad.to(type), own_y, wide.narrow(1, 1, columns), own_weight, groups, epsilon,
                          grad_y, grad_wide.narrow(1, 1, columns), grad_weight, {})();
    EXPECT_LE(RelativeError(grad_y, y.grad()), Tolerance(type));
    EXPECT_LE(RelativeError(grad_wide.narrow(1, 1, columns), gate.grad()), Tolerance(type));
    EXPECT_LE(RelativeError(grad_weight, weight.grad()), Tolerance(type));
    EXPECT_TRUE(grad_wide.narrow(1, 0, 1).isnan().all().item<bool>()) << "another's column was written";
  }
}

TEST(GatedNormRefusalTest, GroupsAreEqualPartsOfARow) {
  at::Tensor y = at::zeros({2, 6});
  EXPECT_THROW(CpuOperations().GatedNorm(y, y, at::zeros({6}), 4, 1e-5, y), std::invalid_argument);
}

class SquaredReluTest : public testing::TestWithParam<at::ScalarType> {};
INSTANTIATE_TEST_SUITE_P(Types, SquaredReluTest, AllTypes());

TEST_P(SquaredReluTest, MatchesAutograd) {
  const at::ScalarType type = GetParam();
  Numbers numbers(71);
  const at::Tensor up = Leaf(Rounded(numbers.Normal({3, 37}), type));
  const at::Tensor grad = Rounded(numbers.Normal({3, 37}), type);
  const at::Tensor expected = up.relu().square();
  expected.backward(grad);
  const at::Tensor own = up.detach().to(type);
  at::Tensor activated = FilledWithNan({3, 37}, type);
  CpuOperations().SquaredRelu(own, activated)();
  EXPECT_LE(RelativeError(activated, expected), Tolerance(type));
  at::Tensor grad_up = FilledWithNan({3, 37}, type);
  at::Tensor both = grad.to(type);  // first the activation's gradient, then the activation
  CpuOperations().SquaredReluBackward(own, both, grad_up, both)();
  EXPECT_LE(RelativeError(grad_up, up.grad()), Tolerance(type));
  EXPECT_TRUE(both.equal(activated));
}

}  // namespace
}  // namespace tandem::ops
