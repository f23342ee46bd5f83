// SPDX-License-Identifier: Apache-2.0
#include "ops/router.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/topk.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <string>
#include <tuple>
#include <vector>

#include "ops/operations.h"
#include "tests/ops/compare.h"

namespace tandem::ops {
namespace {

using namespace test;

constexpr RouterScore kSoftmax = RouterScore::kSoftmax;
constexpr RouterScore kSigmoid = RouterScore::kSigmoid;

struct Routed {
  at::Tensor chosen;
  at::Tensor probabilities;
};

Routed RouteAll(const RouterConfig& config, const at::Tensor& logits, const at::Tensor& bias = {}) {
  Routed routed{.chosen = at::zeros({logits.size(0), config.top_k}, at::kLong).fill_(-1),
                .probabilities = FilledWithNan({logits.size(0), config.top_k}, logits.scalar_type())};
  CpuOperations().Route(config, logits, bias, routed.chosen, routed.probabilities)();
  return routed;
}

// What LibTorch says, with gradients: scores, the largest k of what is compared, normalised and scaled.
Routed Expected(const RouterConfig& config, const at::Tensor& logits, const at::Tensor& bias) {
  const at::Tensor scores = config.score == kSoftmax ? at::softmax(logits, -1) : at::sigmoid(logits);
  at::Tensor compared = scores.detach();
  if (bias.defined()) {
    compared = compared + bias;
  }
  if (config.groups_per_token < config.groups) {
    const at::Tensor grouped = compared.view({logits.size(0), config.groups, -1});
    const at::Tensor sums = std::get<0>(at::topk(grouped, config.best_of_group, -1)).sum(-1);
    const at::Tensor best = std::get<1>(at::topk(sums, config.groups_per_token, -1));
    const at::Tensor allowed = at::zeros_like(sums).scatter_(1, best, 1.0);
    compared = compared.masked_fill((allowed == 0).unsqueeze(-1).expand_as(grouped).reshape(compared.sizes()),
                                    -std::numeric_limits<double>::infinity());
  }
  const at::Tensor chosen = std::get<0>(std::get<1>(at::topk(compared, config.top_k, -1)).sort(/*dim=*/-1));
  at::Tensor probabilities = scores.gather(1, chosen);
  if (config.normalize) {
    probabilities = probabilities / probabilities.sum(-1, /*keepdim=*/true);
  }
  return {.chosen = chosen, .probabilities = probabilities * config.scale};
}

class RouterTest : public AgainstAutogradTest {};
INSTANTIATE_TEST_SUITE_P(Types, RouterTest, testing::Values(at::kFloat, at::kDouble));

TEST_P(RouterTest, MatchesAutograd) {
  for (const RouterConfig& config : std::vector<RouterConfig>{
           {.experts = 1, .top_k = 1},
           {.experts = 8, .top_k = 2, .normalize = true},
           {.experts = 8, .top_k = 8, .normalize = true},
           {.experts = 16, .top_k = 1},
           {.experts = 60, .top_k = 4, .scale = 2.5},
           {.experts = 16, .top_k = 4, .groups = 4, .groups_per_token = 2},
           {.experts = 160, .top_k = 6, .groups = 8, .groups_per_token = 3, .best_of_group = 1, .scale = 16},
           {.experts = 12, .top_k = 5, .groups = 4, .groups_per_token = 2, .best_of_group = 3},
           {.experts = 8, .top_k = 1, .score = kSigmoid},
           {.experts = 8, .top_k = 2, .score = kSigmoid, .scale = 1.5},
           {.experts = 32, .top_k = 8, .score = kSigmoid, .normalize = true, .scale = 2.5},
           {.experts = 32,
           .top_k = 4,
           .score = kSigmoid,
           .normalize = true,
           .groups = 8,
           .groups_per_token = 2}}) {
    for (const bool biased : {false, true}) {
      if (biased && config.score == kSoftmax) {
        continue;
      }
      SCOPED_TRACE(testing::Message() << config.top_k << " of " << config.experts << ", "
                                      << (config.score == kSigmoid ? "sigmoid" : "softmax") << ", "
                                      << config.groups << " groups, bias " << biased);
      const int64_t tokens = 37;
      const at::Tensor logits = RandomLeaf({tokens, config.experts}, 2);
      const at::Tensor bias = biased ? Random({config.experts}) : at::Tensor();
      const at::Tensor grad = Random({tokens, config.top_k});
      const Routed expected = Expected(config, logits, bias);
      expected.probabilities.backward(grad);

      const at::Tensor logits_t = Typed(logits);
      const Routed routed = RouteAll(config, logits_t, biased ? bias.to(type_) : at::Tensor());
      EXPECT_EQ(ToVector(routed.chosen), ToVector(expected.chosen.contiguous()));
      EXPECT_TRUE(Near(routed.probabilities, expected.probabilities));
      at::Tensor grad_logits = Nan({tokens, config.experts});
      ops_.RouteBackward(config, logits_t, routed.chosen, routed.chosen, grad.to(type_), grad_logits)();
      EXPECT_TRUE(Near(grad_logits, logits.grad()));
    }
  }
}

TEST_P(RouterTest, DealtTokensAreSpreadEvenlyWhateverTheScores) {
  for (const RouterConfig& config :
       std::vector<RouterConfig>{{.experts = 8, .top_k = 2, .normalize = true, .deals = true},
                                 {.experts = 7, .top_k = 3, .deals = true},
                                 {.experts = 5, .top_k = 5, .deals = true},
                                 {.experts = 16,
                                 .top_k = 6,
                                 .score = kSigmoid,
                                 .groups = 4,
                                 .groups_per_token = 2,
                                 .deals = true}}) {
    SCOPED_TRACE(testing::Message() << config.top_k << " of " << config.experts);
    const int64_t tokens = 37;
    at::Tensor logits = numbers_.Normal({tokens, config.experts}).to(type_);
    logits.select(1, 3).fill_(100);  // all would choose it
    const Routed routed = RouteAll(config, logits);
    std::vector<int64_t> loads(static_cast<size_t>(config.experts));
    const std::vector<int64_t> chosen = ToVector(routed.chosen);
    for (size_t i = 0; i < chosen.size(); ++i) {
      ++loads.at(static_cast<size_t>(chosen[i]));
      EXPECT_TRUE(i % static_cast<size_t>(config.top_k) == 0 || chosen[i - 1] < chosen[i]) << "ascending";
    }
    // Of two ranks with half of the experts each, both see every token.
    for (int64_t token = 0; config.experts % 2 == 0 && token < tokens; ++token) {
      EXPECT_LT(chosen[static_cast<size_t>(token * config.top_k)], config.experts / 2);
      EXPECT_GE(chosen[static_cast<size_t>((token + 1) * config.top_k - 1)], config.experts / 2);
    }
    EXPECT_LE(*std::max_element(loads.begin(), loads.end()) - *std::min_element(loads.begin(), loads.end()),
              1);
    const at::Tensor wide = logits.to(at::kDouble);
    at::Tensor scores = config.score == kSigmoid ? wide.sigmoid() : wide.softmax(-1);
    scores = scores.gather(1, routed.chosen);
    EXPECT_TRUE(Near(routed.probabilities, config.normalize ? scores / scores.sum(-1, true) : scores));
  }
}

TEST_P(RouterTest, OfEqualScoresTheSmallestIndexIsChosen) {
  const at::Tensor equal = at::zeros({2, 6}, type_);
  const RouterConfig config{.experts = 6, .top_k = 3, .normalize = true};
  EXPECT_EQ(ToVector(RouteAll(config, equal).chosen), (std::vector<int64_t>{0, 1, 2, 0, 1, 2}));
  equal[1][4] = 1;
  EXPECT_EQ(ToVector(RouteAll(config, equal).chosen), (std::vector<int64_t>{0, 1, 2, 0, 1, 4}));
  // Equal groups as well.
  const RouterConfig grouped{.experts = 6, .top_k = 2, .score = kSigmoid, .groups = 3, .groups_per_token = 1};
  EXPECT_EQ(ToVector(RouteAll(grouped, equal).chosen), (std::vector<int64_t>{0, 1, 4, 5}));
}

TEST_P(RouterTest, TheBiasChoosesButDoesNotWeigh) {
  at::Tensor logits = at::zeros({1, 4}, type_);
  logits[0][0] = 3;
  at::Tensor bias = at::zeros({4}, type_);
  bias[2] = 10;
  const RouterConfig config{.experts = 4, .top_k = 1, .score = kSigmoid};
  const Routed routed = RouteAll(config, logits, bias);
  EXPECT_EQ(routed.chosen.item<int64_t>(), 2);
  EXPECT_EQ(routed.probabilities.item<double>(), 0.5);
}

TEST_P(RouterTest, TokensAreCountedByExpert) {
  const at::Tensor chosen = at::tensor({0, 3, 2, 3, 0, 1, 0, 3}, at::kLong).view({4, 2});
  at::Tensor tokens = FilledWithNan({5}, at::kDouble);
  at::Tensor dropped = FilledWithNan({1}, at::kDouble);
  ops_.CountTokens(chosen, tokens, dropped)();
  EXPECT_EQ(dropped.item<double>(), 0);
  EXPECT_TRUE(tokens.equal(at::tensor({3., 1., 1., 3., 0.}, at::kDouble)));
  ops_.CountTokens(at::tensor({-1, 4, 4, -1}, at::kLong).view({2, 2}), tokens, dropped)();
  EXPECT_EQ(dropped.item<double>(), 2);
  EXPECT_TRUE(tokens.equal(at::tensor({0., 0., 0., 0., 2.}, at::kDouble)));
  EXPECT_THROW(ops_.CountTokens(at::tensor({5}, at::kLong).view({1, 1}), tokens, dropped)(),
               std::out_of_range);
}

TEST_P(RouterTest, BiasesMoveTowardsAnEvenLoad) {
  at::Tensor bias = at::tensor({0.5, -1.0, 0.0, 2.0}, at::kDouble).to(type_);
  // Of two ranks together: 3, 1, 2, 2.
  const at::Tensor tokens = at::tensor({1., 1., 0., 2., 2., 0., 2., 0.}, at::kDouble).view({2, 4});
  ops_.UpdateRouterBias(tokens, at::zeros({1}, at::kBool), 0.25, bias)();
  EXPECT_EQ(bias[0].item<double>(), 0.5);
  ops_.UpdateRouterBias(tokens, at::ones({1}, at::kBool), 0.25, bias)();
  EXPECT_TRUE(bias.equal(at::tensor({0.25, -0.75, 0.0, 2.0}, at::kDouble).to(type_)));
}

TEST_P(RouterTest, HugeLogitsDoNotOverflowAndNanShows) {
  at::Tensor logits = at::zeros({2, 4}, type_);
  logits[0][1] = 1e4;
  logits[0][2] = 1e4;
  logits[1][3] = std::numeric_limits<double>::quiet_NaN();
  const Routed routed = RouteAll({.experts = 4, .top_k = 2, .normalize = true}, logits);
  EXPECT_EQ(ToVector(routed.chosen), (std::vector<int64_t>{1, 2, 0, 1}));
  EXPECT_EQ(routed.probabilities[0][0].item<double>(), 0.5);
  EXPECT_TRUE(routed.probabilities[1].isnan().all().item<bool>());
}

TEST_P(RouterTest, RefusesWhatDoesNotFit) {
  const at::Tensor logits = at::zeros({2, 6}, type_);
  const auto refuses = [&](const RouterConfig& config, const at::Tensor& bias = {}) {
    EXPECT_THROW(RouteAll(config, logits, bias), std::invalid_argument);
  };
  refuses({.experts = 6, .top_k = 7});
  refuses({.experts = 5, .top_k = 1});  // the logits are of 6
  refuses({.experts = 6, .top_k = 1, .normalize = true});
  refuses({.experts = 6, .top_k = 2, .groups = 4, .groups_per_token = 2});
  refuses({.experts = 6, .top_k = 2, .groups = 3, .groups_per_token = 4});
  refuses({.experts = 6, .top_k = 3, .groups = 3, .groups_per_token = 1});
  refuses({.experts = 6, .top_k = 2, .groups = 3, .groups_per_token = 2, .best_of_group = 3});
  refuses({.experts = 6, .top_k = 2, .groups = 3, .groups_per_token = 2, .best_of_group = 0});
  refuses({.experts = 6, .top_k = 2}, at::zeros({6}, type_));
  EXPECT_THROW(RouteAll({.experts = 6, .top_k = 2}, logits.to(at::kBFloat16)), std::invalid_argument);
}

}  // namespace
}  // namespace tandem::ops
