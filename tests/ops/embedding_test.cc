#include "ops/embedding.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty_like.h>
#include <gtest/gtest.h>

#include "tests/ops/compare.h"

namespace tandem::ops {
namespace {

using namespace test;

class EmbeddingTest : public testing::TestWithParam<at::ScalarType> {};
INSTANTIATE_TEST_SUITE_P(Types, EmbeddingTest, testing::Values(at::kFloat, at::kDouble));

TEST_P(EmbeddingTest, MatchesAutograd) {
  const at::ScalarType type = GetParam();
  Numbers numbers(21);
  const int64_t vocabulary = 13;
  const int64_t hidden = 19;
  const at::Tensor batch = numbers.Integers({3, 8}, vocabulary);
  const at::Tensor tokens = batch.narrow(1, 0, 7);  // as the node reads it
  const at::Tensor weight = Leaf(numbers.Normal({vocabulary, hidden}));
  const at::Tensor grad = numbers.Normal({21, hidden});
  const at::Tensor expected = weight.index_select(0, tokens.reshape({-1}));
  expected.backward(grad);

  at::Tensor output = FilledWithNan({21, hidden}, type);
  Embedding(tokens, weight.detach().to(type), output);
  EXPECT_TRUE(SameBits(output, expected.detach().to(type)));

  at::Tensor grad_weight = FilledWithNan({vocabulary, hidden}, type);
  EmbeddingBackward(tokens, grad.to(type), /*add=*/false, grad_weight);
  EXPECT_LE(RelativeError(grad_weight, weight.grad()), Tolerance(type));
  EmbeddingBackward(tokens, grad.to(type), /*add=*/true, grad_weight);
  EXPECT_LE(RelativeError(grad_weight, weight.grad() * 2), Tolerance(type));
}

TEST_P(EmbeddingTest, RefusesAnIdOutsideTheVocabulary) {
  Numbers numbers(22);
  at::Tensor tokens = numbers.Integers({1, 4}, 5);
  const at::Tensor weight = numbers.Normal({5, 3}).to(GetParam());
  at::Tensor output = FilledWithNan({4, 3}, GetParam());
  for (const int64_t wrong : {-1, 5}) {
    tokens.data_ptr<int64_t>()[2] = wrong;
    EXPECT_THROW(Embedding(tokens, weight, output), c10::IndexError);
  }
}

}  // namespace
}  // namespace tandem::ops
