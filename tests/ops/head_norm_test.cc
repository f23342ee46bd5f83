// SPDX-License-Identifier: Apache-2.0
#include "ops/head_norm.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/cat.h>
#include <gtest/gtest.h>

#include <array>
#include <vector>

#include "ops/operations.h"
#include "tests/ops/compare.h"

namespace tandem::ops {
namespace {

using namespace test;

constexpr double kEpsilon = 1e-5;

// x: [T, heads * d], each head by itself.
at::Tensor NormOfHeads(const at::Tensor& x, const at::Tensor& weight) {
  const at::Tensor heads = x.view({x.size(0), -1, weight.numel()});
  return (heads * (heads.square().mean(-1, true) + kEpsilon).rsqrt() * weight).view(x.sizes());
}

class HeadNormTest : public testing::TestWithParam<at::ScalarType> {};
INSTANTIATE_TEST_SUITE_P(Types, HeadNormTest, AllTypes());

TEST_P(HeadNormTest, MatchesAutogradAndLeavesValuesAsTheyAre) {
  const at::ScalarType type = GetParam();
  Numbers numbers(76);
  for (const auto& [tokens, heads, kv_heads, head_dim] :
       std::vector<std::array<int64_t, 4>>{{1, 1, 1, 2}, {5, 4, 2, 6}, {7, 3, 3, 20}}) {
    SCOPED_TRACE(testing::Message() << tokens << " tokens, " << heads << " heads of " << head_dim);
    const int64_t query = heads * head_dim;
    const int64_t key = kv_heads * head_dim;
    const at::Tensor qkv = Leaf(Rounded(numbers.Normal({tokens, query + 2 * key}), type));
    const at::Tensor query_weight = Leaf(Rounded(numbers.Normal({head_dim}), type));
    const at::Tensor key_weight = Leaf(Rounded(numbers.Normal({head_dim}), type));
    const at::Tensor grad = Rounded(numbers.Normal({tokens, query + 2 * key}), type);
    const at::Tensor expected = at::cat(
        {NormOfHeads(qkv.narrow(1, 0, query).contiguous(), query_weight),
         NormOfHeads(qkv.narrow(1, query, key).contiguous(), key_weight), qkv.narrow(1, query + key, key)},
        1);
    expected.backward(grad);

    const at::Tensor qkv_t = qkv.detach().to(type);
    const at::Tensor query_t = query_weight.detach().to(type);
    const at::Tensor key_t = key_weight.detach().to(type);
    at::Tensor normed = FilledWithNan({tokens, query + 2 * key}, type);
    CpuOperations().HeadNorm(qkv_t, heads, kv_heads, query_t, key_t, kEpsilon, normed)();
    EXPECT_LE(RelativeError(normed, expected), Tolerance(type));

    at::Tensor grad_query = FilledWithNan({head_dim}, StatisticsOf(type));
    at::Tensor grad_key = FilledWithNan({head_dim}, StatisticsOf(type));
    for (const bool add : {false, true}) {
      at::Tensor in_place = grad.to(type, /*non_blocking=*/false, /*copy=*/true);
      CpuOperations().HeadNormBackward(qkv_t, heads, kv_heads, query_t, key_t, kEpsilon, add, in_place,
                                       grad_query, grad_key, {})();
      EXPECT_LE(RelativeError(in_place, qkv.grad()), Tolerance(type));
      EXPECT_LE(RelativeError(grad_query, query_weight.grad() * (add ? 2 : 1)), Tolerance(type));
      EXPECT_LE(RelativeError(grad_key, key_weight.grad() * (add ? 2 : 1)), Tolerance(type));
    }
  }
}

}  // namespace
}  // namespace tandem::ops
