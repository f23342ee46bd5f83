// SPDX-License-Identifier: Apache-2.0
#include "ops/rms_norm.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <gtest/gtest.h>

#include "ops/operations.h"
#include "tests/ops/compare.h"

namespace tandem::ops {
namespace {

using namespace test;

class RmsNormTest : public testing::TestWithParam<at::ScalarType> {};
INSTANTIATE_TEST_SUITE_P(Types, RmsNormTest, AllTypes());

TEST_P(RmsNormTest, MatchesAutograd) {
  const at::ScalarType type = GetParam();
  Numbers numbers(31);
  for (const auto& [rows, columns, added] : std::vector<std::array<int64_t, 3>>{
           {1, 1, 0}, {3, 5, 0}, {2, 16, 1}, {5, 37, 0}, {5, 37, 1}, {40, 128, 0}}) {
    SCOPED_TRACE(testing::Message() << rows << " x " << columns << ", " << added << " added to the weight");
    const NormConfig norm{.epsilon = 1e-5, .added = static_cast<double>(added)};
    const at::Tensor x = Leaf(Rounded(numbers.Normal({rows, columns}), type));
    const at::Tensor weight = Leaf(Rounded(numbers.Normal({columns}), type));
    const at::Tensor grad_y = Rounded(numbers.Normal({rows, columns}), type);
    const at::Tensor residual = Rounded(numbers.Normal({rows, columns}), type);
    const at::Tensor expected =
        x * (x.square().mean(-1, true) + norm.epsilon).rsqrt() * (weight + norm.added);
    expected.backward(grad_y);

    const at::Tensor x_t = x.detach().to(type);
    const at::Tensor weight_t = weight.detach().to(type);
    at::Tensor y = FilledWithNan({rows, columns}, type);
    CpuOperations().RmsNorm(x_t, weight_t, norm, y)();
    EXPECT_LE(RelativeError(y, expected), Tolerance(type));

    // One column: the gradient of x is nearly nothing, the difference of two numbers of size one.
    const double slack = columns == 1 ? 1e6 : 1;
    at::Tensor grad_x = FilledWithNan({rows, columns}, type);
    at::Tensor grad_weight = FilledWithNan({columns}, StatisticsOf(type));
    CpuOperations().RmsNormBackward(grad_y.to(type), x_t, weight_t, norm, at::Tensor(), false, grad_x, false,
                                    grad_weight, {})();
    EXPECT_LE(RelativeError(grad_x, x.grad()), slack * Tolerance(type));
    EXPECT_LE(RelativeError(grad_weight, weight.grad()), Tolerance(StatisticsOf(type)));

    CpuOperations().RmsNormBackward(grad_y.to(type), x_t, weight_t, norm, residual.to(type), true, grad_x,
                                    true, grad_weight, {})();
    EXPECT_LE(RelativeError(grad_x, x.grad() * 2 + residual), 2 * Tolerance(type));  // rounded twice
    EXPECT_LE(RelativeError(grad_weight, weight.grad() * 2), Tolerance(StatisticsOf(type)));

    CpuOperations().RmsNormBackward(grad_y.to(type), x_t, weight_t, norm, residual.to(type), false, grad_x,
                                    false, grad_weight, {})();
    EXPECT_LE(RelativeError(grad_x, x.grad() + residual), Tolerance(type));
  }
}

}  // namespace
}  // namespace tandem::ops
