// SPDX-License-Identifier: Apache-2.0
#include "ops/rope.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/pow.h>
#include <gtest/gtest.h>

#include "ops/operations.h"
#include "ops/rotary_tables.h"
#include "tests/ops/compare.h"

namespace tandem::ops {
namespace {

using namespace test;

constexpr double kTheta = 10000;

// As Hugging Face's LlamaRotaryEmbedding and rotate_half do it with the first `dim` dims. x: [B, S, heads,
// d].
at::Tensor Reference(const at::Tensor& all, int64_t dim) {
  const at::Tensor x = all.narrow(-1, 0, dim);
  const int64_t length = x.size(1);
  const at::Tensor frequencies = at::pow(kTheta, at::arange(0, dim, 2, at::kDouble) / dim).reciprocal();
  const at::Tensor angles = at::arange(length, at::kDouble).unsqueeze(1) * frequencies;
  const at::Tensor twice = at::cat({angles, angles}, -1).view({length, 1, dim});
  const at::Tensor rotated = at::cat({-x.narrow(-1, dim / 2, dim / 2), x.narrow(-1, 0, dim / 2)}, -1);
  return at::cat({x * twice.cos() + rotated * twice.sin(), all.narrow(-1, dim, all.size(3) - dim)}, -1);
}

class RopeTest : public AgainstAutogradTest {};
INSTANTIATE_TEST_SUITE_P(Types, RopeTest, AllTypes());

TEST_P(RopeTest, MatchesAutogradAndLeavesTheOtherColumnsAlone) {
  for (const auto& [sequences, length, heads, dim, rotary] :
       std::vector<std::array<int64_t, 5>>{{1, 1, 1, 2, 2},
                                           {2, 5, 3, 6, 6},
                                           {2, 33, 2, 32, 32},
                                           {1, 4, 1, 70, 70},
                                           {2, 5, 3, 6, 4},
                                           {2, 33, 2, 64, 16},
                                           {1, 4, 1, 70, 2}}) {
    SCOPED_TRACE(testing::Message() << sequences << " x " << length << " x " << heads << " x " << dim << ", "
                                    << rotary << " rotated");
    const int64_t rest = 3;
    const int64_t columns = heads * dim + rest;
    const at::Tensor all = Random({sequences * length, columns});
    const at::Tensor x = Leaf(all.narrow(1, 0, heads * dim));
    const at::Tensor grad = Random({sequences * length, columns});
    const at::Tensor expected =
        Reference(x.view({sequences, length, heads, dim}), rotary).view({sequences * length, heads * dim});
    expected.backward(grad.narrow(1, 0, heads * dim));

    at::Tensor cosines = NanStatistics({length, rotary / 2});
    at::Tensor sines = NanStatistics({length, rotary / 2});
    RopeTables(kTheta, {}, cosines, sines);
    at::Tensor y = Typed(all);
    ops_.Rope(cosines, sines, heads, dim, y)();
    EXPECT_TRUE(Near(y.narrow(1, 0, heads * dim), expected));
    EXPECT_TRUE(y.narrow(1, heads * dim, rest).equal(all.narrow(1, heads * dim, rest).to(type_)));

    at::Tensor grad_x = Typed(grad);
    ops_.RopeBackward(cosines, sines, heads, dim, grad_x)();
    EXPECT_TRUE(Near(grad_x.narrow(1, 0, heads * dim), x.grad()));
  }
}

}  // namespace
}  // namespace tandem::ops
