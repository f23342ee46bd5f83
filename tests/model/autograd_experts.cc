// SPDX-License-Identifier: Apache-2.0
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/logsumexp.h>
#include <ATen/ops/one_hot.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/topk.h>
#include <ATen/ops/zeros.h>

#include <string>
#include <tuple>

#include "tests/model/autograd_decoder.h"

namespace tandem::model::test {

// Every expert sees every token; those that a token did not choose count nothing.
at::Tensor AutogradDecoder::Experts(int layer, const at::Tensor& x) const {
  const bool mixtral = config_.names == ParameterNames::kMixtral;
  const std::string prefix = LayerPrefix(layer) + (mixtral ? "block_sparse_moe." : "mlp.");
  const at::Tensor normed = Norm(x, LayerPrefix(layer) + "post_attention_layernorm");
  const ops::RouterConfig& router = config_.moe.router;
  const at::Tensor logits = Project(normed, prefix + "gate");
  const bool sigmoid = router.score == ops::RouterScore::kSigmoid;
  const at::Tensor scores = sigmoid ? at::sigmoid(logits) : at::softmax(logits, -1);
  const auto given = chosen_.find(layer);
  const at::Tensor chosen = given == chosen_.end() ? Chosen(layer, scores) : given->second;
  counts_[layer] = at::one_hot(chosen, router.experts).sum(at::IntArrayRef{0, 1}).to(at::kDouble);
  at::Tensor weights = scores.gather(1, chosen);
  if (router.normalize) {
    weights = weights / weights.sum(-1, /*keepdim=*/true);
  }
  weights = weights * router.scale * config_.residual_multiplier;
  if (config_.moe.capacity.factor > 0) {
    weights = weights * Kept(chosen, weights.detach());
  }
  // Those that the balance counts may be others: it knows no biases and no groups.
  const bool is_plain = !sigmoid && router.groups_per_token == router.groups;
  const at::Tensor counted = is_plain ? chosen : std::get<1>(at::topk(scores, router.top_k, -1));
  const at::Tensor shares = sigmoid ? scores / scores.sum(-1, /*keepdim=*/true) : scores;
  router_losses_ = router_losses_ + Balance(layer, shares, counted) * config_.moe.router_aux_loss_coef +
                   at::logsumexp(logits, -1).square().mean() * config_.moe.router_z_loss_coef;
  at::Tensor sum = x;
  for (int64_t expert = 0; expert < router.experts; ++expert) {
    const std::string own = prefix + "experts." + std::to_string(expert) + ".";
    const at::Tensor made = mixtral ? Gated(normed, own + "w1", own + "w3", own + "w2")
                                    : Gated(normed, own + "gate_proj", own + "up_proj", own + "down_proj");
    sum = sum + made * (weights * (chosen == expert)).sum(-1, /*keepdim=*/true);
  }
  if (config_.moe.shared_intermediate_size > 0) {
    const std::string own = prefix + "shared_experts.";
    const at::Tensor made =
        Gated(normed, own + "gate_proj", own + "up_proj", own + "down_proj") * config_.residual_multiplier;
    sum = sum + (config_.moe.shared_gate ? made * at::sigmoid(Project(normed, prefix + "shared_expert_gate"))
                                         : made);
  }
  return sum;
}

// The mean over sequences, or that of the microbatch as one. shares: [T, E]; counted: [T, k].
at::Tensor AutogradDecoder::Balance(int layer, const at::Tensor& shares, const at::Tensor& counted) const {
  const ops::RouterConfig& router = config_.moe.router;
  largest_[layer] = at::one_hot(counted, router.experts).sum(at::IntArrayRef{0, 1});
  const int64_t parts = config_.moe.balance_scope == BalanceScope::kSequence ? sequences_ : 1;
  const int64_t length = shares.size(0) / parts;
  at::Tensor sum = at::zeros({}, at::kDouble);
  for (int64_t part = 0; part < parts; ++part) {
    const auto given = given_counts_.find(layer);
    const at::Tensor counts = given != given_counts_.end()
                                  ? given->second
                                  : at::one_hot(counted.narrow(0, part * length, length), router.experts)
                                        .sum(at::IntArrayRef{0, 1});
    sum = sum + (counts * shares.narrow(0, part * length, length).sum(0)).sum();
  }
  return sum * static_cast<double>(router.experts) /
         static_cast<double>(router.top_k * length * length * parts);
}

// 1 where the expert has room for the choice, else 0. chosen, weights: [T, k].
at::Tensor AutogradDecoder::Kept(const at::Tensor& chosen, const at::Tensor& weights) const {
  const int64_t tokens = chosen.size(0);
  const int64_t capacity = ops::CapacityOf(config_.moe.router, config_.moe.capacity, tokens);
  const bool by_position = config_.moe.capacity.policy == ops::DropPolicy::kPosition;
  at::Tensor kept = at::zeros({tokens, chosen.size(1)}, at::kDouble);
  for (int64_t expert = 0; expert < config_.moe.router.experts; ++expert) {
    const at::Tensor mine = (chosen == expert).to(at::kDouble);  // at most one choice of a token
    const at::Tensor rank = by_position ? -at::arange(tokens, at::kDouble) : (mine * weights).sum(-1);
    const at::Tensor best = std::get<1>(at::topk(rank - 1e9 * (mine.sum(-1) == 0), capacity, 0));
    kept = kept + mine * at::one_hot(best, tokens).sum(0).unsqueeze(-1);
  }
  return kept;
}

// The largest scores, of the groups whose best (best_of_group) have the largest sums.
at::Tensor AutogradDecoder::Chosen(int layer, const at::Tensor& scores) const {
  const ops::RouterConfig& router = config_.moe.router;
  at::Tensor compared = scores.detach();
  if (const auto bias = biases_.find(layer); bias != biases_.end()) {
    compared = compared + bias->second;
  }
  if (router.groups_per_token < router.groups) {
    const at::Tensor grouped = compared.view({scores.size(0), router.groups, -1});
    const at::Tensor sums = std::get<0>(at::topk(grouped, router.best_of_group, -1)).sum(-1);
    const at::Tensor best = std::get<1>(at::topk(sums, router.groups_per_token, -1));
    const at::Tensor allowed = at::one_hot(best, router.groups).sum(1);
    compared = grouped.masked_fill((allowed == 0).unsqueeze(-1), -1e9).view(scores.sizes());
  }
  return std::get<1>(at::topk(compared, router.top_k, -1));
}

}  // namespace tandem::model::test
