// SPDX-License-Identifier: Apache-2.0
#include "ops/cross_entropy.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/zeros_like.h>
#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "ops/operations.h"
#include "tests/ops/compare.h"

namespace tandem::ops {
namespace {

using namespace test;

class CrossEntropyTest : public AgainstAutogradTest {};
INSTANTIATE_TEST_SUITE_P(Types, CrossEntropyTest, AllTypes());

TEST_P(CrossEntropyTest, MatchesAutograd) {
  for (const auto& [sequences, length, vocabulary] :
       std::vector<std::array<int64_t, 3>>{{1, 1, 2}, {2, 3, 7}, {3, 5, 16}, {2, 9, 100}, {2, 16, 256}}) {
    SCOPED_TRACE(testing::Message() << sequences << " x " << length << " of " << vocabulary);
    const int64_t tokens = sequences * length;
    const at::Tensor logits = RandomLeaf({tokens, vocabulary}, 5);
    const at::Tensor batch = numbers_.Integers({sequences, length + 1}, vocabulary);
    const at::Tensor targets = batch.narrow(1, 1, length);
    const at::Tensor expected = at::cross_entropy_loss(logits, targets.reshape({-1}));
    expected.backward();

    at::Tensor logits_t = Typed(logits);
    at::Tensor lse = NanStatistics({tokens});
    at::Tensor loss = FilledWithNan({1}, at::kDouble);
    at::Tensor apart = Nan({tokens, vocabulary});
    ops_.CrossEntropy(logits_t, targets, lse, loss, apart)();
    // Absolute: a confident prediction's loss is the small difference of large numbers.
    EXPECT_NEAR(loss.item<double>(), expected.item<double>(), Tolerance(StatisticsOf(type_)));

    EXPECT_LE((apart - logits.grad()).abs().max().item<double>(), Tolerance(type_) / tokens);
    // Those beside a target's gradient, which is larger.
    const auto others = [&](const at::Tensor& gradients) {
      return gradients.scatter(1, targets.reshape({-1, 1}), 0);
    };
    EXPECT_TRUE(Near(others(apart), others(logits.grad())));
    ops_.CrossEntropy(logits_t, targets, lse, loss, logits_t)();
    EXPECT_TRUE(SameBits(logits_t, apart));
  }
}

TEST_P(CrossEntropyTest, TargetsThatDoNotCountAddNothing) {
  const at::Tensor logits = (numbers_.Normal({6, 37}) * 5).to(type_);
  const auto run = [&](const at::Tensor& targets, at::Tensor& loss) {
    at::Tensor lse = NanStatistics({6});
    at::Tensor gradients = Nan({6, 37});
    ops_.CrossEntropy(logits, targets, lse, loss, gradients)();
    return gradients;
  };
  at::Tensor targets = numbers_.Integers({2, 3}, 37);
  at::Tensor loss = FilledWithNan({1}, at::kDouble);
  at::Tensor expected = run(targets, loss);
  const double all = loss.item<double>();
  const at::Tensor of_row =
      at::cross_entropy_loss(logits.to(at::kDouble).narrow(0, 4, 1), targets.view({6}).narrow(0, 4, 1));
  targets[1][1] = kNotCounted;
  const at::Tensor gradients = run(targets, loss);
  EXPECT_NEAR(loss.item<double>(), all - of_row.item<double>() / 6, Tolerance(StatisticsOf(type_)));
  expected[4].zero_();
  EXPECT_TRUE(SameBits(gradients, expected));
  EXPECT_TRUE(SameBits(run(at::full_like(targets, kNotCounted), loss), at::zeros_like(expected)));
  EXPECT_EQ(loss.item<double>(), 0);
}

TEST_P(CrossEntropyTest, RefusesAChunkBeyondTheTokens) {
  const at::Tensor targets = at::Tensor(Numbers(66).Integers({1, 3}, 5));
  at::Tensor logits = Nan({2, 5});
  at::Tensor lse = NanStatistics({3});
  at::Tensor loss = FilledWithNan({1}, at::kDouble);
  EXPECT_THROW(ops_.CrossEntropyChunk(logits, targets, 2, lse, loss, logits)(), std::invalid_argument);
  EXPECT_THROW(ops_.CrossEntropyChunk(logits, targets, -1, lse, loss, logits)(), std::invalid_argument);
  EXPECT_THROW(ops_.CrossEntropy(logits, targets, lse, loss, logits)(), std::invalid_argument) << "not all";
}

TEST_P(CrossEntropyTest, RefusesATargetOutsideTheVocabulary) {
  const at::Tensor logits = Nan({4, 5}).zero_();
  at::Tensor targets = Numbers(63).Integers({2, 2}, 5);
  targets[1][0] = 5;
  at::Tensor lse = NanStatistics({4});
  at::Tensor loss = FilledWithNan({1}, at::kDouble);
  at::Tensor grad_logits = logits.clone();
  EXPECT_THROW(ops_.CrossEntropy(logits, targets, lse, loss, grad_logits)(), std::out_of_range);
}

}  // namespace
}  // namespace tandem::ops
