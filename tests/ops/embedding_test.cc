// SPDX-License-Identifier: Apache-2.0
#include "ops/embedding.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include "ops/operations.h"
#include "tests/ops/compare.h"

namespace tandem::ops {
namespace {

using namespace test;

class EmbeddingTest : public testing::TestWithParam<at::ScalarType> {};
INSTANTIATE_TEST_SUITE_P(Types, EmbeddingTest, AllTypes());

TEST_P(EmbeddingTest, MatchesAutograd) {
  const at::ScalarType type = GetParam();
  Numbers numbers(21);
  const int64_t vocabulary = 13;
  const int64_t hidden = 19;
  const at::Tensor batch = numbers.Integers({3, 8}, vocabulary);
  const at::Tensor tokens = batch.narrow(1, 0, 7);  // as the node reads it
  const at::Tensor weight = Leaf(Rounded(numbers.Normal({vocabulary, hidden}), type));
  const at::Tensor grad = Rounded(numbers.Normal({21, hidden}), type);
  const at::Tensor expected = weight.index_select(0, tokens.reshape({-1}));
  expected.backward(grad);

  at::Tensor output = FilledWithNan({21, hidden}, type);
  CpuOperations().Embedding(tokens, weight.detach().to(type), output)();
  EXPECT_TRUE(SameBits(output, expected.detach().to(type)));

  for (const at::ScalarType sum : {type, StatisticsOf(type)}) {
    at::Tensor grad_weight = FilledWithNan({vocabulary, hidden}, sum);
    CpuOperations().EmbeddingBackward(tokens, grad.to(type), /*add=*/false, grad_weight, {})();
    EXPECT_LE(RelativeError(grad_weight, weight.grad()), Tolerance(sum));
    CpuOperations().EmbeddingBackward(tokens, grad.to(type), /*add=*/true, grad_weight, {})();
    EXPECT_LE(RelativeError(grad_weight, weight.grad() * 2), 1.5 * Tolerance(sum));  // rounded twice
  }
}

TEST_P(EmbeddingTest, MultipliesByAFactor) {
  const at::ScalarType type = GetParam();
  Numbers numbers(23);
  constexpr double kFactor = 12.5;
  const at::Tensor tokens = numbers.Integers({2, 30}, 7);
  const at::Tensor weight = Leaf(Rounded(numbers.Normal({7, 19}), type));
  const at::Tensor grad = Rounded(numbers.Normal({60, 19}), type);
  const at::Tensor expected = weight.index_select(0, tokens.reshape({-1})) * kFactor;
  expected.backward(grad);
  at::Tensor output = FilledWithNan({60, 19}, type);
  CpuOperations().Embedding(tokens, weight.detach().to(type), output, kFactor)();
  EXPECT_LE(RelativeError(output, expected), Tolerance(type));
  for (const at::ScalarType sum : {type, StatisticsOf(type)}) {
    at::Tensor grad_weight = FilledWithNan({7, 19}, sum);
    CpuOperations().EmbeddingBackward(tokens, grad.to(type), /*add=*/false, grad_weight, {}, kFactor)();
    EXPECT_LE(RelativeError(grad_weight, weight.grad()), Tolerance(sum));
    CpuOperations().EmbeddingBackward(tokens, grad.to(type), /*add=*/true, grad_weight, {}, kFactor)();
    EXPECT_LE(RelativeError(grad_weight, weight.grad() * 2), 1.5 * Tolerance(sum));
  }
}

// What is added up in bfloat16 stops at 256 ones.
TEST(EmbeddingBf16Test, RowsOfOneIdAreAddedUpBeforeTheyAreRounded) {
  const at::Tensor tokens = at::zeros({1, 1000}, at::kLong);
  const at::Tensor grad = at::ones({1000, 3}, at::kBFloat16);
  at::Tensor grad_weight = FilledWithNan({2, 3}, at::kBFloat16);
  CpuOperations().EmbeddingBackward(tokens, grad, /*add=*/false, grad_weight, {})();
  EXPECT_TRUE(grad_weight[0].eq(1000).all().item<bool>());
  EXPECT_TRUE(grad_weight[1].eq(0).all().item<bool>());
}

TEST_P(EmbeddingTest, RefusesAnIdOutsideTheVocabulary) {
  Numbers numbers(22);
  at::Tensor tokens = numbers.Integers({1, 4}, 5);
  const at::Tensor weight = numbers.Normal({5, 3}).to(GetParam());
  at::Tensor output = FilledWithNan({4, 3}, GetParam());
  for (const int64_t wrong : {-1, 5}) {
    tokens.data_ptr<int64_t>()[2] = wrong;
    EXPECT_THROW(CpuOperations().Embedding(tokens, weight, output)(), std::out_of_range);
  }
}

}  // namespace
}  // namespace tandem::ops
