// SPDX-License-Identifier: Apache-2.0
#include "ops/norm_gate.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include "ops/operations.h"
#include "tests/ops/compare.h"

namespace tandem::ops {
namespace {

using namespace test;

class NormGateTest : public AgainstAutogradTest {
 protected:
  // Gates of `together` rows are columns of a wider row.
  void Compare(int64_t rows, int64_t columns, int64_t together) {
    SCOPED_TRACE(testing::Message() << rows << " x " << columns << ", " << together << " gates a row");
    const int64_t wide_columns = together * columns;
    const at::Tensor y = RandomLeaf({rows, columns});
    const at::Tensor gate = RandomLeaf({rows / together, wide_columns});
    const at::Tensor weight = RandomLeaf({1, columns});
    const at::Tensor grad = Random({rows, columns});
    const at::Tensor expected = y * (y.square().mean(1, /*keepdim=*/true) + 1e-6).rsqrt() * weight *
                                at::silu(gate).view({rows, columns});
    expected.backward(grad);

    const at::Tensor own_y = Typed(y);
    const at::Tensor own_weight = Typed(weight).view({columns});
    const at::Tensor own_grad = grad.to(type_);
    const at::Tensor wide = Nan({rows / together, wide_columns + 4});
    wide.narrow(1, 3, wide_columns).copy_(gate.detach());
    at::Tensor gated = Nan({rows, columns});
    at::Tensor grad_y = Nan({rows, columns});
    const at::Tensor grad_wide = Nan({rows / together, wide_columns + 2});
    at::Tensor grad_weight = NanStatistics({columns});
    ops_.NormGate(own_y, wide.narrow(1, 3, wide_columns), own_weight, 1e-6, gated)();
    ops_.NormGateBackward(own_grad, own_y, wide.narrow(1, 3, wide_columns), own_weight, 1e-6, grad_y,
                          grad_wide.narrow(1, 1, wide_columns), grad_weight, {})();
    EXPECT_TRUE(Near(gated, expected));
    EXPECT_TRUE(Near(grad_y, y.grad(), 2));
    EXPECT_TRUE(Near(grad_wide.narrow(1, 1, wide_columns), gate.grad()));
    EXPECT_TRUE(Near(grad_weight.view({1, columns}), weight.grad()));
    EXPECT_TRUE(grad_wide.narrow(1, 0, 1).isnan().all().item<bool>()) << "another's column was written";
  }
};
INSTANTIATE_TEST_SUITE_P(Types, NormGateTest, AllTypes());

TEST_P(NormGateTest, MatchesAutograd) {
  Compare(1, 5, 1);
  Compare(6, 37, 2);
  Compare(33, 16, 3);
  Compare(8, 128, 8);
}

TEST(NormGateRefusalTest, AGateOfOtherRowsIsRefused) {
  const at::Tensor y = at::zeros({4, 3});
  EXPECT_THROW(CpuOperations().NormGate(y, at::zeros({2, 5}), at::zeros({3}), 1e-6, y),
               std::invalid_argument);
}

}  // namespace
}  // namespace tandem::ops
