// SPDX-License-Identifier: Apache-2.0
#include "ops/rms_norm.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include "ops/operations.h"
#include "tests/ops/compare.h"

namespace tandem::ops {
namespace {

using namespace test;

class RmsNormTest : public AgainstAutogradTest {};
INSTANTIATE_TEST_SUITE_P(Types, RmsNormTest, AllTypes());

TEST_P(RmsNormTest, MatchesAutograd) {
  for (const auto& [rows, columns, added] : std::vector<std::array<int64_t, 3>>{
           {1, 1, 0}, {3, 5, 0}, {2, 16, 1}, {5, 37, 0}, {5, 37, 1}, {40, 128, 0}}) {
    SCOPED_TRACE(testing::Message() << rows << " x " << columns << ", " << added << " added to the weight");
    const NormConfig norm{.epsilon = 1e-5, .added = static_cast<double>(added)};
    const at::Tensor x = RandomLeaf({rows, columns});
    const at::Tensor weight = RandomLeaf({columns});
    const at::Tensor grad_y = Random({rows, columns});
    const at::Tensor residual = Random({rows, columns});
    const at::Tensor expected =
        x * (x.square().mean(-1, true) + norm.epsilon).rsqrt() * (weight + norm.added);
    expected.backward(grad_y);

    const at::Tensor x_t = Typed(x);
    const at::Tensor weight_t = Typed(weight);
    at::Tensor y = Nan({rows, columns});
    ops_.RmsNorm(x_t, weight_t, norm, y)();
    EXPECT_TRUE(Near(y, expected));

    // One column: the gradient of x is nearly nothing, the difference of two numbers of size one.
    const double slack = columns == 1 ? 1e6 : 1;
    at::Tensor grad_x = Nan({rows, columns});
    at::Tensor grad_weight = NanStatistics({columns});
    ops_.RmsNormBackward(grad_y.to(type_), x_t, weight_t, norm, at::Tensor(), false, grad_x, false,
                         grad_weight, {})();
    EXPECT_TRUE(Near(grad_x, x.grad(), slack));
    EXPECT_LE(RelativeError(grad_weight, weight.grad()), Tolerance(StatisticsOf(type_)));

    ops_.RmsNormBackward(grad_y.to(type_), x_t, weight_t, norm, residual.to(type_), true, grad_x, true,
                         grad_weight, {})();
    EXPECT_TRUE(Near(grad_x, x.grad() * 2 + residual, 2));  // rounded twice
    EXPECT_LE(RelativeError(grad_weight, weight.grad() * 2), Tolerance(StatisticsOf(type_)));

    ops_.RmsNormBackward(grad_y.to(type_), x_t, weight_t, norm, residual.to(type_), false, grad_x, false,
                         grad_weight, {})();
    EXPECT_TRUE(Near(grad_x, x.grad() + residual));
  }
}

TEST(RmsNormRefusalTest, AnOperandOfAnotherTypeIsNamed) {
  const at::Tensor x = at::zeros({2, 3});
  try {
    CpuOperations().RmsNorm(x, at::zeros({3}, at::kDouble), {}, x);
    FAIL();
  } catch (const std::invalid_argument& error) {
    EXPECT_STREQ(error.what(), "weight must have elements of float32, not float64 [3, 1] on the CPU");
  }
}

}  // namespace
}  // namespace tandem::ops
