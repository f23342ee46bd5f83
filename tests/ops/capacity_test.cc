// SPDX-License-Identifier: Apache-2.0
#include "ops/capacity.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros_like.h>
#include <gtest/gtest.h>

#include <limits>

#include "ops/operations.h"
#include "ops/router.h"
#include "ops/sparse_work.h"
#include "tests/ops/compare.h"
#include "tests/ops/tested_operations.h"

namespace tandem::ops {
namespace {

using namespace test;

TEST(CapacityOfTest, RoundsTheShareUpWithinWhatThereIs) {
  const RouterConfig router{.experts = 8, .top_k = 2};
  EXPECT_EQ(CapacityOf(router, {.factor = 0}, 100), 100);
  EXPECT_EQ(CapacityOf(router, {.factor = 1}, 100), 25);
  EXPECT_EQ(CapacityOf(router, {.factor = 1.25}, 100), 32);
  EXPECT_EQ(CapacityOf(router, {.factor = 1.1}, 40), 11);  // 11.000000000000002 in double
  EXPECT_EQ(CapacityOf(router, {.factor = 100}, 40), 40);
  EXPECT_EQ(CapacityOf({.experts = 64, .top_k = 1}, {.factor = 1}, 3), 1);
}

// Expert 0 is chosen by all four tokens, expert 2 by two.
const std::vector<int64_t> kRanked = {0, 1, 0, 2, 0, 2, 0, 3};

struct Kept {
  at::Tensor chosen;
  at::Tensor probabilities;
};

Kept Drop(DropPolicy policy, int64_t capacity, const at::Tensor& probabilities) {
  const Operations& ops = Tested();
  const at::Tensor ranked = at::tensor(kRanked, at::kLong).view({4, 2}).to(TorchDeviceOf(ops));
  const at::Tensor chosen = at::zeros_like(ranked);
  const at::Tensor kept = probabilities.clone().to(TorchDeviceOf(ops));
  ops.DropOverflow(policy, capacity, /*experts=*/4, ranked, chosen, kept,
                   WorkMemory(ops, DropWorkBytes(ops.kind(), ranked.numel(), 4)))();
  return {.chosen = chosen.cpu(), .probabilities = kept.cpu()};
}

TEST(DropOverflowTest, LargestProbabilitiesStayAndFirstOfEqualOnes) {
  const at::Tensor probabilities =
      at::tensor({0.3, 0.7, 0.6, 0.4, 0.6, 0.4, 0.9, 0.1}, at::kDouble).view({4, 2});
  const Kept two = Drop(DropPolicy::kProbability, 2, probabilities);
  EXPECT_EQ(ToVector(two.chosen), (std::vector<int64_t>{-1, 1, 0, 2, -1, 2, 0, 3}));
  EXPECT_TRUE(
      two.probabilities.flatten().equal(at::tensor({0.0, 0.7, 0.6, 0.4, 0.0, 0.4, 0.9, 0.1}, at::kDouble)));
  const Kept one = Drop(DropPolicy::kProbability, 1, probabilities);
  EXPECT_EQ(ToVector(one.chosen), (std::vector<int64_t>{-1, 1, -1, 2, -1, -1, 0, 3}));
}

// 0.6 for the same token at two positions, computed in another order: which is larger is chance.
TEST(DropOverflowTest, TheFirstOfNearlyEqualProbabilitiesStay) {
  for (const auto type : {at::kDouble, at::kFloat}) {
    const double rounding = type == at::kDouble ? 4e-16 : 4e-7;
    for (const double sign : {-1.0, 0.0, 1.0}) {
      const double other = 0.6 * (1 + sign * rounding);
      const at::Tensor probabilities =
          at::tensor({0.3, 0.7, 0.6, 0.4, other, 0.4, 0.9, 0.1}, type).view({4, 2});
      EXPECT_EQ(ToVector(Drop(DropPolicy::kProbability, 2, probabilities).chosen),
                (std::vector<int64_t>{-1, 1, 0, 2, -1, 2, 0, 3}))
          << sign;
    }
    const at::Tensor apart = at::tensor({0.3, 0.7, 0.6, 0.4, 0.6001, 0.4, 0.9, 0.1}, type).view({4, 2});
    EXPECT_EQ(ToVector(Drop(DropPolicy::kProbability, 2, apart).chosen),
              (std::vector<int64_t>{-1, 1, -1, 2, 0, 2, 0, 3}));
  }
}

TEST(DropOverflowTest, TheFirstStay) {
  const at::Tensor probabilities =
      at::tensor({0.3, 0.7, 0.6, 0.4, 0.6, 0.4, 0.9, 0.1}, at::kFloat).view({4, 2});
  const Kept kept = Drop(DropPolicy::kPosition, 2, probabilities);
  EXPECT_EQ(ToVector(kept.chosen), (std::vector<int64_t>{0, 1, 0, 2, -1, 2, -1, 3}));
  EXPECT_TRUE(
      kept.probabilities.flatten().equal(at::tensor({0.3, 0.7, 0.6, 0.4, 0.0, 0.4, 0.0, 0.1}, at::kFloat)));
}

TEST(DropOverflowTest, WithRoomNothingIsDroppedAndNanStays) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const at::Tensor probabilities =
      at::tensor({nan, nan, 0.6, 0.4, 0.6, 0.4, 0.9, 0.1}, at::kDouble).view({4, 2});
  EXPECT_EQ(ToVector(Drop(DropPolicy::kProbability, 4, probabilities).chosen), kRanked);
  const Kept kept = Drop(DropPolicy::kProbability, 3, probabilities);
  EXPECT_EQ(ToVector(kept.chosen), (std::vector<int64_t>{-1, 1, 0, 2, 0, 2, 0, 3}));
  EXPECT_EQ(kept.probabilities.select(0, 0).select(0, 0).item<double>(), 0);
  EXPECT_TRUE(kept.probabilities.select(0, 0).select(0, 1).isnan().item<bool>());
}

// What was dropped has no gradient of its own, and is in what the others were divided by.
TEST(DropOverflowTest, TheGradientOfWhatStaysMatchesAutograd) {
  Numbers numbers(84);
  for (const RouterScore score : {RouterScore::kSoftmax, RouterScore::kSigmoid}) {
    for (const bool normalize : {false, true}) {
      const RouterConfig config{
          .experts = 5, .top_k = 2, .score = score, .normalize = normalize, .scale = 1.5};
      const at::Tensor logits = Leaf(numbers.Normal({12, 5}));
      at::Tensor ranked = at::zeros_like(numbers.Integers({12, 2}, 5));
      at::Tensor probabilities = FilledWithNan({12, 2}, at::kDouble);
      CpuOperations().Route(config, logits.detach(), /*bias=*/at::Tensor(), ranked, probabilities)();
      at::Tensor chosen = at::zeros_like(ranked);
      CpuOperations().DropOverflow(DropPolicy::kProbability, 3, 5, ranked, chosen, probabilities, {})();
      ASSERT_LT(chosen.min().item<int64_t>(), 0);

      const at::Tensor scores =
          score == RouterScore::kSoftmax ? at::softmax(logits, -1) : at::sigmoid(logits);
      at::Tensor expected = scores.gather(1, ranked);
      if (normalize) {
        expected = expected / expected.sum(-1, /*keepdim=*/true);
      }
      expected = expected * config.scale * (chosen >= 0);
      EXPECT_LE(RelativeError(probabilities, expected), 1e-12);
      const at::Tensor grad = numbers.Normal({12, 2});
      expected.backward(grad);
      at::Tensor grad_logits = FilledWithNan({12, 5}, at::kDouble);
      CpuOperations().RouteBackward(config, logits.detach(), ranked, chosen, grad, grad_logits)();
      EXPECT_LE(RelativeError(grad_logits, logits.grad()), 1e-12);
    }
  }
}

}  // namespace
}  // namespace tandem::ops
