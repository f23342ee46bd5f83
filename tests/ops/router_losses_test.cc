// SPDX-License-Identifier: Apache-2.0
#include "ops/router_losses.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/log_sigmoid.h>
#include <ATen/ops/logsumexp.h>
#include <ATen/ops/one_hot.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/topk.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <tuple>
#include <vector>

#include "ops/operations.h"
#include "tests/ops/compare.h"

namespace tandem::ops {
namespace {

using namespace test;

at::Tensor Balance(const RouterConfig& config, int64_t length, const at::Tensor& logits) {
  const int64_t sequences = logits.size(0) / length;
  at::Tensor scores = at::softmax(logits, -1);
  if (config.score == RouterScore::kSigmoid) {
    const at::Tensor sigmoids = at::sigmoid(logits);
    scores = sigmoids / sigmoids.sum(-1, /*keepdim=*/true);
  }
  const at::Tensor chosen = at::one_hot(std::get<1>(at::topk(scores, config.top_k, -1)), config.experts);
  const at::Tensor counts = chosen.view({sequences, -1, config.experts}).sum(1);  // [B, E]
  const at::Tensor sums = scores.view({sequences, length, config.experts}).sum(1);
  return (counts * sums).sum() * static_cast<double>(config.experts) /
         static_cast<double>(config.top_k * length * length * sequences);
}

class RouterLossesTest : public AgainstAutogradTest {};
INSTANTIATE_TEST_SUITE_P(Types, RouterLossesTest, testing::Values(at::kFloat, at::kDouble));

TEST_P(RouterLossesTest, MatchAutogradForMicrobatchesAndForEachSequence) {
  for (const RouterScore score : {RouterScore::kSoftmax, RouterScore::kSigmoid}) {
    // A choice by groups does not matter to the balance.
    const RouterConfig config{.experts = 12, .top_k = 4, .score = score, .groups = 3, .groups_per_token = 2};
    for (const int64_t length : {8, 24}) {
      for (const auto& [balance, z] : std::vector<std::pair<double, double>>{{0.5, 0.25}, {1, 0}, {0, 1}}) {
        SCOPED_TRACE(testing::Message() << static_cast<int>(score) << ", sequences of " << length << ", "
                                        << balance << " and " << z);
        const at::Tensor logits = RandomLeaf({24, 12});
        const at::Tensor expected_balance = Balance(config, length, logits);
        const at::Tensor expected_z = at::logsumexp(logits, -1).square().mean();
        const at::Tensor before = Random({24, 12}, 1e-2);
        (expected_balance * balance + expected_z * z).backward();

        const RouterLossConfig losses{.sequence_length = length, .balance = balance, .z = z};
        const at::Tensor logits_t = Typed(logits);
        at::Tensor values = FilledWithNan({2}, at::kDouble);
        ops_.RouterLosses(config, losses, logits_t, {}, values, {})();
        EXPECT_TRUE(Near(values[0], expected_balance));
        EXPECT_TRUE(Near(values[1], expected_z));
        at::Tensor grad_logits = Typed(before);
        ops_.RouterLossesBackward(config, losses, logits_t, {}, /*targets=*/{}, grad_logits, {})();
        EXPECT_TRUE(Near(grad_logits, before + logits.grad()));
      }
    }
  }
}

TEST_P(RouterLossesTest, GradientsAreOfTheTargetsThatCount) {
  const RouterConfig config{.experts = 6, .top_k = 2};
  const RouterLossConfig losses{.sequence_length = 4, .balance = 0.5, .z = 0.25};
  const at::Tensor logits = numbers_.Normal({8, 6}).to(type_);
  const auto gradient = [&](const at::Tensor& targets) {
    at::Tensor grad_logits = at::zeros({8, 6}, type_);
    ops_.RouterLossesBackward(config, losses, logits, {}, targets.defined() ? Array(targets) : Array(),
                              grad_logits, {})();
    return grad_logits;
  };
  const at::Tensor whole = gradient({});
  // Two sequences of four, in columns of a wider batch.
  at::Tensor batch = at::ones({2, 9}, at::kLong);
  EXPECT_TRUE(at::equal(gradient(batch.narrow(1, 5, 4)), whole));
  batch[0][5] = batch[1][8] = kNotCounted;
  batch[0][4] = kNotCounted;  // not a target
  EXPECT_TRUE(Near(gradient(batch.narrow(1, 5, 4)), whole.to(at::kDouble) * 0.75));
  batch.fill_(kNotCounted);
  EXPECT_TRUE(at::equal(gradient(batch.narrow(1, 5, 4)), at::zeros({8, 6}, type_)));
}

TEST_P(RouterLossesTest, SigmoidsThatUnderflowStillHaveShares) {
  const RouterConfig config{.experts = 4, .top_k = 2, .score = RouterScore::kSigmoid};
  const RouterLossConfig losses{.sequence_length = 3, .balance = 1};
  // All sigmoids of the first token are 0 in T; those of the second nearly; those of the third are not.
  const double far = type_ == at::kFloat ? -120 : -800;
  at::Tensor logits = at::zeros({3, 4}, at::kDouble);
  for (int64_t e = 0; e < 4; ++e) {
    logits[0][e] = far - static_cast<double>(e) / 4;
    logits[1][e] = far * 0.7 + static_cast<double>(e) / 8;
    logits[2][e] = static_cast<double>(e) / 4;
  }
  logits = Leaf(logits);
  // Far below 0 the sigmoid is the exponential, so that shares are a softmax.
  const at::Tensor shares = at::softmax(at::log_sigmoid(logits), -1);
  const at::Tensor counts = at::one_hot(std::get<1>(at::topk(shares, 2, -1)), 4).sum(1).sum(0);
  const at::Tensor expected = (counts * shares.sum(0)).sum() * (4.0 / (2 * 3 * 3));
  expected.backward();

  const at::Tensor logits_t = Typed(logits);
  at::Tensor values = FilledWithNan({2}, at::kDouble);
  ops_.RouterLosses(config, losses, logits_t, {}, values, {})();
  EXPECT_TRUE(Near(values[0], expected));
  at::Tensor grad_logits = at::zeros({3, 4}, type_);
  ops_.RouterLossesBackward(config, losses, logits_t, {}, /*targets=*/{}, grad_logits, {})();
  EXPECT_TRUE(Near(grad_logits, logits.grad(), 10));
}

TEST_P(RouterLossesTest, AnEvenLoadHasBalanceOne) {
  at::Tensor logits = at::zeros({8, 4}, type_);
  for (int64_t token = 0; token < 8; ++token) {
    logits[token][token % 4] = 1e-3;
  }
  at::Tensor values = FilledWithNan({2}, at::kDouble);
  ops_.RouterLosses({.experts = 4, .top_k = 1}, {.sequence_length = 8}, logits, {}, values, {})();
  EXPECT_NEAR(values[0].item<double>(), 1, 1e-6);
}

TEST_P(RouterLossesTest, RefuseSequencesThatAreNotWhole) {
  at::Tensor values = FilledWithNan({2}, at::kDouble);
  EXPECT_THROW(ops_.RouterLosses({.experts = 4, .top_k = 1}, {.sequence_length = 3}, at::zeros({8, 4}, type_),
                                 {}, values, {})(),
               std::invalid_argument);
}

// A batch of three microbatches on two ranks, in two rounds of which the second lacks one: the mean of the
// microbatches' losses and gradients is that of the whole batch where all of it has been seen.
TEST_P(RouterLossesTest, MicrobatchesWithMeanCountsHaveTheBatchsLoss) {
  for (const RouterScore score : {RouterScore::kSoftmax, RouterScore::kSigmoid}) {
    const RouterConfig config{.experts = 12, .top_k = 4, .score = score, .groups = 3, .groups_per_token = 2};
    const at::Tensor logits = Random({24, 12}).to(type_);
    const RouterLossConfig whole{.sequence_length = 24, .balance = 0.75, .z = 0.25};
    at::Tensor values = FilledWithNan({2}, at::kDouble);
    ops_.RouterLosses(config, whole, logits, {}, values, {})();
    at::Tensor gradient = at::zeros({24, 12}, type_);
    ops_.RouterLossesBackward(config, whole, logits, {}, /*targets=*/{}, gradient, {})();

    at::Tensor by_rank = FilledWithNan({3, 12}, at::kDouble);
    for (int64_t m = 0; m < 3; ++m) {
      at::Tensor own = by_rank.select(0, m);
      ops_.CountLargest(config, logits.narrow(0, 8 * m, 8), own)();
    }
    at::Tensor seen = FilledWithNan({12}, at::kDouble);
    at::Tensor counts = FilledWithNan({12}, at::kDouble);
    ops_.MeanCounts(by_rank.narrow(0, 0, 2), /*slots=*/32, /*continues=*/false, seen, counts)();
    ops_.MeanCounts(by_rank.narrow(0, 2, 1), /*slots=*/32, /*continues=*/true, seen, counts)();
    EXPECT_TRUE(at::equal(seen, by_rank.sum(0)));
    EXPECT_LE(RelativeError(counts, by_rank.mean(0)), 1e-15);
    at::Tensor nothing;
    at::Tensor at_once = FilledWithNan({12}, at::kDouble);
    ops_.MeanCounts(by_rank, /*slots=*/32, /*continues=*/false, nothing, at_once)();
    EXPECT_TRUE(at::equal(at_once, counts));

    at::Tensor mean = at::zeros({2}, at::kDouble);
    at::Tensor mean_gradient = at::zeros({24, 12}, type_);
    for (int64_t m = 0; m < 3; ++m) {
      const RouterLossConfig part{.sequence_length = 8, .balance = 0.75, .z = 0.25};
      at::Tensor of_part = FilledWithNan({2}, at::kDouble);
      ops_.RouterLosses(config, part, logits.narrow(0, 8 * m, 8), counts, of_part, {})();
      mean += of_part / 3;
      at::Tensor rows = mean_gradient.narrow(0, 8 * m, 8);
      ops_.RouterLossesBackward(config, part, logits.narrow(0, 8 * m, 8), counts, /*targets=*/{}, rows, {})();
    }
    EXPECT_TRUE(Near(mean, values));
    EXPECT_TRUE(Near(mean_gradient / 3, gradient.to(at::kDouble)));
  }
}

TEST_P(RouterLossesTest, RefuseCountsOfSequencesAndNothingToContinue) {
  at::Tensor values = FilledWithNan({2}, at::kDouble);
  const at::Tensor counts = at::ones({4}, at::kDouble);
  EXPECT_THROW(ops_.RouterLosses({.experts = 4, .top_k = 1}, {.sequence_length = 4}, at::zeros({8, 4}, type_),
                                 counts, values, {})(),
               std::invalid_argument);
  at::Tensor nothing;
  at::Tensor mean = at::zeros({4}, at::kDouble);
  EXPECT_THROW(ops_.MeanCounts(counts.view({1, 4}), 8, /*continues=*/true, nothing, mean)(),
               std::invalid_argument);
}

}  // namespace
}  // namespace tandem::ops
