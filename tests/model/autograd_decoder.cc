// SPDX-License-Identifier: Apache-2.0
#include "tests/model/autograd_decoder.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/softmax.h>

#include <cmath>
#include <limits>

namespace tandem::model::test {
namespace {

std::string LayerPrefix(int layer) { return "model.layers." + std::to_string(layer) + "."; }

}  // namespace

AutogradDecoder::AutogradDecoder(const DecoderConfig& config,
                                 const std::map<std::string, at::Tensor>& parameters)
    : config_(config) {
  for (const auto& [name, parameter] : parameters) {
    parameters_[name] =
        parameter.detach().to(at::kDouble, /*non_blocking=*/false, /*copy=*/true).requires_grad_();
  }
}

at::Tensor AutogradDecoder::Loss(const at::Tensor& tokens) const {
  at::Tensor x = Embedding(tokens);
  for (int layer = 0; layer < config_.num_hidden_layers; ++layer) {
    x = Attention(layer, x, tokens.size(0));
    x = Mlp(layer, x);
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
  const at::Tensor q = Rotate(heads("q_proj", config_.num_attention_heads));
  const at::Tensor k = Rotate(heads("k_proj", config_.num_key_value_heads)).repeat_interleave(group, 1);
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
  const at::Tensor gated =
      at::silu(Project(normed, prefix + "mlp.gate_proj")) * Project(normed, prefix + "mlp.up_proj");
  return x + Project(gated, prefix + "mlp.down_proj");
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
