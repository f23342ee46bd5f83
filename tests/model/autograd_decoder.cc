// SPDX-License-Identifier: Apache-2.0
#include "tests/model/autograd_decoder.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/logsumexp.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/one_hot.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/topk.h>
#include <ATen/ops/zeros.h>

#include <cmath>
#include <limits>
#include <tuple>

namespace tandem::model::test {
namespace {

std::string LayerPrefix(int layer) { return "model.layers." + std::to_string(layer) + "."; }

}  // namespace

AutogradDecoder::AutogradDecoder(const DecoderConfig& config,
                                 const std::map<std::string, at::Tensor>& parameters)
    : config_(config), router_losses_(at::zeros({}, at::kDouble)) {
  for (const auto& [name, parameter] : parameters) {
    parameters_[name] =
        parameter.requires_grad()
            ? parameter
            : parameter.detach().to(at::kDouble, /*non_blocking=*/false, /*copy=*/true).requires_grad_();
  }
}

at::Tensor AutogradDecoder::Loss(const at::Tensor& tokens) const {
  router_losses_ = at::zeros({}, at::kDouble);
  at::Tensor x = Embedding(tokens);
  for (int layer = 0; layer < config_.num_hidden_layers; ++layer) {
    x = Attention(layer, x, tokens.size(0));
    x = config_.IsSparse(layer) ? Experts(layer, x) : Mlp(layer, x);
  }
  return Head(x, tokens);
}

at::Tensor AutogradDecoder::Embedding(const at::Tensor& tokens) const {
  const at::Tensor inputs = tokens.narrow(1, 0, tokens.size(1) - 1).reshape({-1});
  return parameters_.at("model.embed_tokens.weight").index_select(0, inputs);
}

at::Tensor AutogradDecoder::Attention(int layer, const at::Tensor& x, int64_t sequences) const {
  const int64_t length = x.size(0) / sequences;
  const at::Tensor normed = Norm(x, LayerPrefix(layer) + "input_layernorm");
  const std::string prefix = LayerPrefix(layer) + "self_attn.";
  const auto heads = [&](const char* name, int64_t count) {
    return Project(normed, prefix + name).view({sequences, length, count, config_.head_dim}).transpose(1, 2);
  };
  const int64_t group = config_.num_attention_heads / config_.num_key_value_heads;
  const auto normed_heads = [&](const char* name, int64_t count, const char* norm) {
    const at::Tensor projected = heads(name, count);
    return Rotate(config_.NormsHeads() ? Norm(projected, prefix + norm) : projected);
  };
  const at::Tensor q = normed_heads("q_proj", config_.num_attention_heads, "q_norm");
  const at::Tensor k =
      normed_heads("k_proj", config_.num_key_value_heads, "k_norm").repeat_interleave(group, 1);
  const at::Tensor v = heads("v_proj", config_.num_key_value_heads).repeat_interleave(group, 1);
  const at::Tensor later = at::ones({length, length}, at::kBool).triu(1);
  const at::Tensor scores =
      (at::matmul(q, k.transpose(2, 3)) / std::sqrt(static_cast<double>(config_.head_dim)))
          .masked_fill(later, -std::numeric_limits<double>::infinity());
  const at::Tensor context = at::matmul(at::softmax(scores, -1), v);
  return x + Project(context.transpose(1, 2).reshape({sequences * length, -1}), prefix + "o_proj");
}

at::Tensor AutogradDecoder::Mlp(int layer, const at::Tensor& x) const {
  const std::string prefix = LayerPrefix(layer);
  const at::Tensor normed = Norm(x, prefix + "post_attention_layernorm");
  return x + Gated(normed, prefix + "mlp.gate_proj", prefix + "mlp.up_proj", prefix + "mlp.down_proj");
}

// Every expert sees every token; those that a token did not choose count nothing.
at::Tensor AutogradDecoder::Experts(int layer, const at::Tensor& x) const {
  const bool mixtral = config_.architecture == Architecture::kMixtral;
  const std::string prefix = LayerPrefix(layer) + (mixtral ? "block_sparse_moe." : "mlp.");
  const at::Tensor normed = Norm(x, LayerPrefix(layer) + "post_attention_layernorm");
  const ops::RouterConfig& router = config_.moe.router;
  const at::Tensor logits = Project(normed, prefix + "gate");
  const at::Tensor scores = at::softmax(logits, -1);
  const auto given = chosen_.find(layer);
  const at::Tensor chosen =
      given == chosen_.end() ? std::get<1>(at::topk(scores, router.top_k, -1)) : given->second;
  at::Tensor weights = scores.gather(1, chosen);
  if (router.normalize) {
    weights = weights / weights.sum(-1, /*keepdim=*/true);
  }
  const auto tokens = static_cast<double>(x.size(0));
  const at::Tensor counts = at::one_hot(chosen, router.experts).sum(at::IntArrayRef{0, 1});
  const at::Tensor balance = (counts * scores.sum(0)).sum() * static_cast<double>(router.experts) /
                             (static_cast<double>(router.top_k) * tokens * tokens);
  router_losses_ = router_losses_ + balance * config_.moe.router_aux_loss_coef +
                   at::logsumexp(logits, -1).square().mean() * config_.moe.router_z_loss_coef;
  at::Tensor sum = x;
  for (int64_t expert = 0; expert < router.experts; ++expert) {
    const std::string own = prefix + "experts." + std::to_string(expert) + ".";
    const at::Tensor made = mixtral ? Gated(normed, own + "w1", own + "w3", own + "w2")
                                    : Gated(normed, own + "gate_proj", own + "up_proj", own + "down_proj");
    sum = sum + made * (weights * (chosen == expert)).sum(-1, /*keepdim=*/true);
  }
  return sum;
}

at::Tensor AutogradDecoder::Gated(const at::Tensor& x, const std::string& gate, const std::string& up,
                                  const std::string& down) const {
  return Project(at::silu(Project(x, gate)) * Project(x, up), down);
}

at::Tensor AutogradDecoder::Head(const at::Tensor& x, const at::Tensor& tokens) const {
  const at::Tensor targets = tokens.narrow(1, 1, tokens.size(1) - 1).reshape({-1});
  const at::Tensor& weight =
      parameters_.at(config_.tie_word_embeddings ? "model.embed_tokens.weight" : "lm_head.weight");
  return at::cross_entropy_loss(at::matmul(Norm(x, "model.norm"), weight.t()), targets);
}

at::Tensor AutogradDecoder::Project(const at::Tensor& x, const std::string& name) const {
  return at::matmul(x, parameters_.at(name + ".weight").t());
}

at::Tensor AutogradDecoder::Norm(const at::Tensor& x, const std::string& name) const {
  return x * (x.square().mean(-1, true) + config_.rms_norm_eps).rsqrt() * parameters_.at(name + ".weight");
}

at::Tensor AutogradDecoder::Rotate(const at::Tensor& x) const {
  const int64_t dim = config_.head_dim;
  const at::Tensor frequencies =
      at::pow(config_.rope_theta, at::arange(0, dim, 2, at::kDouble) / dim).reciprocal();
  const at::Tensor angles = at::arange(x.size(2), at::kDouble).unsqueeze(1) * frequencies;
  const at::Tensor twice = at::cat({angles, angles}, -1);
  const at::Tensor turned = at::cat({-x.narrow(-1, dim / 2, dim / 2), x.narrow(-1, 0, dim / 2)}, -1);
  return x * twice.cos() + turned * twice.sin();
}

}  // namespace tandem::model::test
