// SPDX-License-Identifier: Apache-2.0
#include "ops/router_losses.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/logsumexp.h>
#include <ATen/ops/one_hot.h>
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

class RouterLossesTest : public testing::TestWithParam<at::ScalarType> {};
INSTANTIATE_TEST_SUITE_P(Types, RouterLossesTest, testing::Values(at::kFloat, at::kDouble));

TEST_P(RouterLossesTest, MatchAutogradForAMicrobatchAndForEachSequence) {
  const at::ScalarType type = GetParam();
  Numbers numbers(72);
  for (const RouterScore score : {RouterScore::kSoftmax, RouterScore::kSigmoid}) {
    // A choice by groups does not matter to the balance.
    const RouterConfig config{.experts = 12, .top_k = 4, .score = score, .groups = 3, .groups_per_token = 2};
    for (const int64_t length : {8, 24}) {
      for (const auto& [balance, z] : std::vector<std::pair<double, double>>{{0.5, 0.25}, {1, 0}, {0, 1}}) {
        SCOPED_TRACE(testing::Message() << static_cast<int>(score) << ", sequences of " << length << ", "
                                        << balance << " and " << z);
        const at::Tensor logits = Leaf(Rounded(numbers.Normal({24, 12}), type));
        const at::Tensor expected_balance = Balance(config, length, logits);
        const at::Tensor expected_z = at::logsumexp(logits, -1).square().mean();
        const at::Tensor before = Rounded(numbers.Normal({24, 12}) * 1e-2, type);
        (expected_balance * balance + expected_z * z).backward();

        const RouterLossConfig losses{.sequence_length = length, .balance = balance, .z = z};
        const at::Tensor logits_t = logits.detach().to(type);
        at::Tensor values = FilledWithNan({2}, at::kDouble);
        CpuOperations().sparse().RouterLosses(config, losses, logits_t, values, {});
        EXPECT_LE(RelativeError(values[0], expected_balance), Tolerance(type));
        EXPECT_LE(RelativeError(values[1], expected_z), Tolerance(type));
        at::Tensor grad_logits = before.to(type, /*non_blocking=*/false, /*copy=*/true);
        CpuOperations().sparse().RouterLossesBackward(config, losses, logits_t, grad_logits, {});
        EXPECT_LE(RelativeError(grad_logits, before + logits.grad()), Tolerance(type));
      }
    }
  }
}

TEST_P(RouterLossesTest, AnEvenLoadHasBalanceOne) {
  at::Tensor logits = at::zeros({8, 4}, GetParam());
  for (int64_t token = 0; token < 8; ++token) {
    logits[token][token % 4] = 1e-3;
  }
  at::Tensor values = FilledWithNan({2}, at::kDouble);
  CpuOperations().sparse().RouterLosses({.experts = 4, .top_k = 1}, {.sequence_length = 8}, logits, values,
                                        {});
  EXPECT_NEAR(values[0].item<double>(), 1, 1e-6);
}

TEST_P(RouterLossesTest, RefuseSequencesThatAreNotWhole) {
  at::Tensor values = FilledWithNan({2}, at::kDouble);
  EXPECT_THROW(CpuOperations().sparse().RouterLosses({.experts = 4, .top_k = 1}, {.sequence_length = 3},
                                                     at::zeros({8, 4}, GetParam()), values, {}),
               c10::Error);
}

}  // namespace
}  // namespace tandem::ops
