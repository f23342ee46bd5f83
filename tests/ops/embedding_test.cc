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

class EmbeddingTest : public AgainstAutogradTest {};
INSTANTIATE_TEST_SUITE_P(Types, EmbeddingTest, AllTypes());

TEST_P(EmbeddingTest, MatchesAutogradWithAFactorOrNone) {
  constexpr int64_t kVocabulary = 13;
  constexpr int64_t kHidden = 19;
  const at::Tensor batch = numbers_.Integers({3, 8}, kVocabulary);
  const at::Tensor tokens = batch.narrow(1, 0, 7);  // as the node reads it
  for (const double factor : {1.0, 12.5}) {
    SCOPED_TRACE(factor);
    const at::Tensor weight = RandomLeaf({kVocabulary, kHidden});
    const at::Tensor grad = Random({21, kHidden});
    const at::Tensor expected = weight.index_select(0, tokens.reshape({-1})) * factor;
    expected.backward(grad);

    at::Tensor output = Nan({21, kHidden});
    ops_.Embedding(tokens, Typed(weight), output, factor)();
    EXPECT_TRUE(Near(output, expected));
    EXPECT_TRUE(factor != 1 || SameBits(output, Typed(expected)));

    for (const at::ScalarType sum : {type_, StatisticsOf(type_)}) {
      at::Tensor grad_weight = FilledWithNan({kVocabulary, kHidden}, sum);
      ops_.EmbeddingBackward(tokens, Typed(grad), /*add=*/false, grad_weight, {}, factor)();
      EXPECT_LE(RelativeError(grad_weight, weight.grad()), Tolerance(sum));
      ops_.EmbeddingBackward(tokens, Typed(grad), /*add=*/true, grad_weight, {}, factor)();
      EXPECT_LE(RelativeError(grad_weight, weight.grad() * 2), 1.5 * Tolerance(sum));  // rounded twice
    }
  }
}

// What is added up in bfloat16 stops at 256 ones.
TEST(EmbeddingBf16Test, RowsOfOneIdAreSummedBeforeRounding) {
  const at::Tensor tokens = at::zeros({1, 1000}, at::kLong);
  const at::Tensor grad = at::ones({1000, 3}, at::kBFloat16);
  at::Tensor grad_weight = FilledWithNan({2, 3}, at::kBFloat16);
  CpuOperations().EmbeddingBackward(tokens, grad, /*add=*/false, grad_weight, {})();
  EXPECT_TRUE(grad_weight[0].eq(1000).all().item<bool>());
  EXPECT_TRUE(grad_weight[1].eq(0).all().item<bool>());
}

TEST_P(EmbeddingTest, RefusesAnIdOutsideTheVocabulary) {
  at::Tensor tokens = numbers_.Integers({1, 4}, 5);
  const at::Tensor weight = numbers_.Normal({5, 3}).to(type_);
  at::Tensor output = Nan({4, 3});
  for (const int64_t wrong : {-1, 5}) {
    tokens.data_ptr<int64_t>()[2] = wrong;
    EXPECT_THROW(ops_.Embedding(tokens, weight, output)(), std::out_of_range);
  }
}

}  // namespace
}  // namespace tandem::ops
