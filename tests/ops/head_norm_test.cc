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
    const at::Tensor expected =
        at::cat({NormOfHeads(qkv.narrow(1, 0, query).contiguous(), query_weight, kNorm),
                 NormOfHeads(qkv.narrow(1, query, key).contiguous(), key_weight, kNorm),
                 qkv.narrow(1, query + key, key)},
                1);
    expected.backward(grad);

    const at::Tensor qkv_t = qkv.detach().to(type);
    const at::Tensor query_t = query_weight.detach().to(type);
    const at::Tensor key_t = key_weight.detach().to(type);
    at::Tensor normed = FilledWithNan({tokens, query + 2 * key}, type);
    CpuOperations().HeadNorm(qkv_t, heads, kv_heads, query_t, key_t, kNorm, normed)();
    EXPECT_LE(RelativeError(normed, expected), Tolerance(type));

    at::Tensor grad_query = FilledWithNan({head_dim}, StatisticsOf(type));
    at::Tensor grad_key = FilledWithNan({head_dim}, StatisticsOf(type));
    for (const bool add : {false, true}) {
      at::Tensor in_place = grad.to(type, /*non_blocking=*/false, /*copy=*/true);
      CpuOperations().HeadNormBackward(qkv_t, heads, kv_heads, query_t, key_t, kNorm, add, in_place,
                                       grad_query, grad_key, {})();
      EXPECT_LE(RelativeError(in_place, qkv.grad()), Tolerance(type));
      EXPECT_LE(RelativeError(grad_query, query_weight.grad() * (add ? 2 : 1)), Tolerance(type));
      EXPECT_LE(RelativeError(grad_key, key_weight.grad() * (add ? 2 : 1)), Tolerance(type));
    }
  }
}

TEST_P(HeadNormTest, QueriesWithGatesBehindThemMatchAutogradAndGatesAndValuesAreLeftAlone) {
  const at::ScalarType type = GetParam();
  constexpr NormConfig kAddsOne{.epsilon = 1e-6, .added = 1};
  constexpr int64_t kTokens = 7;
  constexpr int64_t kHeads = 4;
  constexpr int64_t kHeadDim = 6;
  constexpr int64_t kQuery = kHeads * kHeadDim;
  constexpr int64_t kKey = 2 * kHeadDim;
  Numbers numbers(77);
  const at::Tensor queries = Leaf(Rounded(numbers.Normal({kTokens, kQuery}), type));
  const at::Tensor keys = Leaf(Rounded(numbers.Normal({kTokens, kKey}), type));
  const at::Tensor gates = Rounded(numbers.Normal({kTokens, kQuery}), type);
  const at::Tensor values = Rounded(numbers.Normal({kTokens, kKey}), type);
  const at::Tensor query_weight = Leaf(Rounded(numbers.Normal({kHeadDim}), type));
  const at::Tensor key_weight = Leaf(Rounded(numbers.Normal({kHeadDim}), type));
  const at::Tensor grad = Rounded(numbers.Normal({kTokens, kQuery + 2 * kKey}), type);
  const at::Tensor expected = at::cat(
      {NormOfHeads(queries, query_weight, kAddsOne), NormOfHeads(keys, key_weight, kAddsOne), values}, 1);
  expected.backward(grad);

  // [T, heads, query or gate, d], and behind it keys and values.
  const auto laid_out = [&](const at::Tensor& query, const at::Tensor& gate, const at::Tensor& key,
                            const at::Tensor& value) {
    const std::vector<int64_t> of_heads = {kTokens, kHeads, 1, kHeadDim};
    const at::Tensor pairs = at::cat({query.reshape(of_heads), gate.reshape(of_heads)}, 2);
    return at::cat({pairs.view({kTokens, 2 * kQuery}), key, value}, 1).to(type);
  };
  const at::Tensor qkv = laid_out(queries.detach(), gates, keys.detach(), values);
  const at::Tensor query_t = query_weight.detach().to(type);
  const at::Tensor key_t = key_weight.detach().to(type);
  at::Tensor normed = FilledWithNan({kTokens, kQuery + 2 * kKey}, type);
  at::Tensor grad_qkv = qkv.clone();
  at::Tensor grad_query = FilledWithNan({kHeadDim}, StatisticsOf(type));
  at::Tensor grad_key = FilledWithNan({kHeadDim}, StatisticsOf(type));
  CpuOperations().HeadNorm(qkv, kHeads, 2, query_t, key_t, kAddsOne, normed)();
  CpuOperations().HeadNormBackward(qkv, kHeads, 2, query_t, key_t, kAddsOne, /*add_weights=*/false,
                                   grad.to(type), grad_query, grad_key, {}, grad_qkv)();
  EXPECT_LE(RelativeError(normed, expected), Tolerance(type));
  EXPECT_LE(RelativeError(grad_qkv, laid_out(queries.grad(), gates, keys.grad(), values)), Tolerance(type));
  EXPECT_LE(RelativeError(grad_query, query_weight.grad()), Tolerance(type));
  EXPECT_LE(RelativeError(grad_key, key_weight.grad()), Tolerance(type));
}

TEST(HeadNormRefusalTest, AGradientWithGatesHasAnArrayOfItsOwn) {
  at::Tensor qkv = at::zeros({1, 8});  // a head of 2, its gate, a key and a value
  const at::Tensor weight = at::zeros({2});
  at::Tensor grad = at::zeros({1, 6});
  EXPECT_THROW(
      CpuOperations().HeadNormBackward(qkv, 1, 1, weight, weight, kNorm, false, grad, weight, weight, {}),
      std::invalid_argument);
}

}  // namespace
}  // namespace tandem::ops
