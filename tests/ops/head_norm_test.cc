// SPDX-License-Identifier: Apache-2.0
#include "ops/head_norm.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <array>
#include <vector>

#include "ops/operations.h"
#include "tests/ops/compare.h"

namespace tandem::ops {
namespace {

using namespace test;

constexpr NormConfig kNorm{.epsilon = 1e-5};

// x: [T, heads * d], each head by itself.
at::Tensor NormOfHeads(const at::Tensor& x, const at::Tensor& weight, const NormConfig& norm) {
  const at::Tensor heads = x.view({x.size(0), -1, weight.numel()});
  return (heads * (heads.square().mean(-1, true) + norm.epsilon).rsqrt() * (weight + norm.added))
      .view(x.sizes());
}

class HeadNormTest : public AgainstAutogradTest {};
INSTANTIATE_TEST_SUITE_P(Types, HeadNormTest, AllTypes());

TEST_P(HeadNormTest, MatchesAutogradAndLeavesValuesAsTheyAre) {
  for (const auto& [tokens, heads, kv_heads, head_dim] :
       std::vector<std::array<int64_t, 4>>{{1, 1, 1, 2}, {5, 4, 2, 6}, {7, 3, 3, 20}}) {
    SCOPED_TRACE(testing::Message() << tokens << " tokens, " << heads << " heads of " << head_dim);
    const int64_t query = heads * head_dim;
    const int64_t key = kv_heads * head_dim;
    const at::Tensor qkv = RandomLeaf({tokens, query + 2 * key});
    const at::Tensor query_weight = RandomLeaf({head_dim});
    const at::Tensor key_weight = RandomLeaf({head_dim});
    const at::Tensor grad = Random({tokens, query + 2 * key});
    const at::Tensor expected =
        at::cat({NormOfHeads(qkv.narrow(1, 0, query).contiguous(), query_weight, kNorm),
                 NormOfHeads(qkv.narrow(1, query, key).contiguous(), key_weight, kNorm),
                 qkv.narrow(1, query + key, key)},
                1);
    expected.backward(grad);

    const at::Tensor qkv_t = Typed(qkv);
    const at::Tensor query_t = Typed(query_weight);
    const at::Tensor key_t = Typed(key_weight);
    at::Tensor normed = Nan({tokens, query + 2 * key});
    ops_.HeadNorm(qkv_t, heads, kv_heads, query_t, key_t, kNorm, normed)();
    EXPECT_TRUE(Near(normed, expected));

    at::Tensor grad_query = NanStatistics({head_dim});
    at::Tensor grad_key = NanStatistics({head_dim});
    for (const bool add : {false, true}) {
      at::Tensor in_place = Typed(grad);
      ops_.HeadNormBackward(qkv_t, heads, kv_heads, query_t, key_t, kNorm, add, in_place, grad_query,
                            grad_key, {})();
      EXPECT_TRUE(Near(in_place, qkv.grad()));
      EXPECT_TRUE(Near(grad_query, query_weight.grad() * (add ? 2 : 1)));
      EXPECT_TRUE(Near(grad_key, key_weight.grad() * (add ? 2 : 1)));
    }
  }
}

TEST_P(HeadNormTest, GatedQueriesMatchAutogradAndOthersStayAlone) {
  constexpr NormConfig kAddsOne{.epsilon = 1e-6, .added = 1};
  constexpr int64_t kTokens = 7;
  constexpr int64_t kHeads = 4;
  constexpr int64_t kHeadDim = 6;
  constexpr int64_t kQuery = kHeads * kHeadDim;
  constexpr int64_t kKey = 2 * kHeadDim;
  const at::Tensor queries = RandomLeaf({kTokens, kQuery});
  const at::Tensor keys = RandomLeaf({kTokens, kKey});
  const at::Tensor gates = Random({kTokens, kQuery});
  const at::Tensor values = Random({kTokens, kKey});
  const at::Tensor query_weight = RandomLeaf({kHeadDim});
  const at::Tensor key_weight = RandomLeaf({kHeadDim});
  const at::Tensor grad = Random({kTokens, kQuery + 2 * kKey});
  const at::Tensor expected = at::cat(
      {NormOfHeads(queries, query_weight, kAddsOne), NormOfHeads(keys, key_weight, kAddsOne), values}, 1);
  expected.backward(grad);

  // [T, heads, query or gate, d], and behind it keys and values.
  const auto laid_out = [&](const at::Tensor& query, const at::Tensor& gate, const at::Tensor& key,
                            const at::Tensor& value) {
    const std::vector<int64_t> of_heads = {kTokens, kHeads, 1, kHeadDim};
    const at::Tensor pairs = at::cat({query.reshape(of_heads), gate.reshape(of_heads)}, 2);
    return at::cat({pairs.view({kTokens, 2 * kQuery}), key, value}, 1).to(type_);
  };
  const at::Tensor qkv = laid_out(queries.detach(), gates, keys.detach(), values);
  const at::Tensor query_t = Typed(query_weight);
  const at::Tensor key_t = Typed(key_weight);
  at::Tensor normed = Nan({kTokens, kQuery + 2 * kKey});
  at::Tensor grad_qkv = qkv.clone();
  at::Tensor grad_query = NanStatistics({kHeadDim});
  at::Tensor grad_key = NanStatistics({kHeadDim});
  ops_.HeadNorm(qkv, kHeads, 2, query_t, key_t, kAddsOne, normed)();
  ops_.HeadNormBackward(qkv, kHeads, 2, query_t, key_t, kAddsOne, /*add_weights=*/false, grad.to(type_),
                        grad_query, grad_key, {}, grad_qkv)();
  EXPECT_TRUE(Near(normed, expected));
  EXPECT_TRUE(Near(grad_qkv, laid_out(queries.grad(), gates, keys.grad(), values)));
  EXPECT_TRUE(Near(grad_query, query_weight.grad()));
  EXPECT_TRUE(Near(grad_key, key_weight.grad()));
}

TEST(HeadNormRefusalTest, GradientsWithGatesHaveTheirOwnArray) {
  at::Tensor qkv = at::zeros({1, 8});  // a head of 2, its gate, a key and a value
  const at::Tensor weight = at::zeros({2});
  at::Tensor grad = at::zeros({1, 6});
  EXPECT_THROW(
      CpuOperations().HeadNormBackward(qkv, 1, 1, weight, weight, kNorm, false, grad, weight, weight, {}),
      std::invalid_argument);
}

}  // namespace
}  // namespace tandem::ops
