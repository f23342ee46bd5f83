// SPDX-License-Identifier: Apache-2.0
#include "ops/cross_entropy.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "ops/operations.h"
#include "tests/ops/compare.h"

namespace tandem::ops {
namespace {

using namespace test;

class CrossEntropyTest : public testing::TestWithParam<at::ScalarType> {};
INSTANTIATE_TEST_SUITE_P(Types, CrossEntropyTest, AllTypes());

TEST_P(CrossEntropyTest, MatchesAutograd) {
  const at::ScalarType type = GetParam();
  Numbers numbers(61);
  for (const auto& [sequences, length, vocabulary] :
       std::vector<std::array<int64_t, 3>>{{1, 1, 2}, {2, 3, 7}, {3, 5, 16}, {2, 9, 100}, {2, 16, 256}}) {
    SCOPED_TRACE(testing::Message() << sequences << " x " << length << " of " << vocabulary);
    const int64_t tokens = sequences * length;
    const at::Tensor logits = Leaf(Rounded(numbers.Normal({tokens, vocabulary}) * 5, type));
    const at::Tensor batch = numbers.Integers({sequences, length + 1}, vocabulary);
    const at::Tensor targets = batch.narrow(1, 1, length);
    const at::Tensor expected = at::cross_entropy_loss(logits, targets.reshape({-1}));
    expected.backward();

    at::Tensor logits_t = logits.detach().to(type, /*non_blocking=*/false, /*copy=*/true);
    at::Tensor lse = FilledWithNan({tokens}, StatisticsOf(type));
    at::Tensor loss = FilledWithNan({1}, at::kDouble);
    at::Tensor apart = FilledWithNan({tokens, vocabulary}, type);
    CpuOperations().CrossEntropy(logits_t, targets, lse, loss, apart);
    // Absolute: a confident prediction's loss is the small difference of large numbers.
    EXPECT_NEAR(loss.item<double>(), expected.item<double>(), Tolerance(StatisticsOf(type)));

    EXPECT_LE((apart - logits.grad()).abs().max().item<double>(), Tolerance(type) / tokens);
    // Those beside a target's gradient, which is larger.
    const auto others = [&](const at::Tensor& gradients) {
      return gradients.scatter(1, targets.reshape({-1, 1}), 0);
    };
    EXPECT_LE(RelativeError(others(apart), others(logits.grad())), Tolerance(type));
    CpuOperations().CrossEntropy(logits_t, targets, lse, loss, logits_t);
    EXPECT_TRUE(SameBits(logits_t, apart));
  }
}

TEST_P(CrossEntropyTest, BlocksMatchAutogradOfTheWhole) {
  const at::ScalarType type = GetParam();
  Numbers numbers(64);
  for (const auto& [vocabulary, block] :
       std::vector<std::array<int64_t, 2>>{{7, 7}, {7, 1}, {100, 32}, {256, 64}}) {
    SCOPED_TRACE(testing::Message() << "blocks of " << block << " of " << vocabulary);
    const int64_t tokens = 18;
    const at::Tensor logits = Leaf(Rounded(numbers.Normal({tokens, vocabulary}) * 5, type));
    const at::Tensor targets = numbers.Integers({2, 10}, vocabulary).narrow(1, 1, 9);
    const at::Tensor expected = at::cross_entropy_loss(logits, targets.reshape({-1}));
    expected.backward();

    at::Tensor lse = FilledWithNan({tokens}, StatisticsOf(type));
    at::Tensor target_logits = FilledWithNan({tokens}, StatisticsOf(type));
    at::Tensor loss = FilledWithNan({1}, at::kDouble);
    const auto block_at = [&](int64_t first) {
      return logits.detach().narrow(1, first, std::min(block, vocabulary - first)).to(type).contiguous();
    };
    for (int64_t first = 0; first < vocabulary; first += block) {
      EXPECT_TRUE(loss.isnan().item<bool>()) << "the last block writes it";
      CpuOperations().CrossEntropyBlock(block_at(first), targets, first, vocabulary, lse, target_logits,
                                        loss);
    }
    EXPECT_NEAR(loss.item<double>(), expected.item<double>(), Tolerance(StatisticsOf(type)));
    for (int64_t first = 0; first < vocabulary; first += block) {
      at::Tensor grad = block_at(first);
      CpuOperations().CrossEntropyBlockBackward(targets, first, vocabulary, lse, grad);
      EXPECT_LE((grad - logits.grad().narrow(1, first, grad.size(1))).abs().max().item<double>(),
                Tolerance(type) / tokens);
    }
  }
}

TEST_P(CrossEntropyTest, RefusesABlockOutsideTheVocabulary) {
  const at::Tensor targets = at::Tensor(Numbers(66).Integers({1, 2}, 5));
  at::Tensor logits = FilledWithNan({2, 3}, GetParam());
  const at::Tensor lse = FilledWithNan({2}, StatisticsOf(GetParam()));
  EXPECT_THROW(CpuOperations().CrossEntropyBlockBackward(targets, 3, 5, lse, logits), c10::Error);
  EXPECT_THROW(CpuOperations().CrossEntropyBlockBackward(targets, -1, 5, lse, logits), c10::Error);
}

TEST_P(CrossEntropyTest, RefusesATargetOutsideTheVocabulary) {
  const at::Tensor logits = FilledWithNan({4, 5}, GetParam()).zero_();
  at::Tensor targets = Numbers(63).Integers({2, 2}, 5);
  targets[1][0] = 5;
  at::Tensor lse = FilledWithNan({4}, StatisticsOf(GetParam()));
  at::Tensor loss = FilledWithNan({1}, at::kDouble);
  at::Tensor grad_logits = logits.clone();
  EXPECT_THROW(CpuOperations().CrossEntropy(logits, targets, lse, loss, grad_logits), c10::IndexError);
}

}  // namespace
}  // namespace tandem::ops
