// SPDX-License-Identifier: Apache-2.0
#include "tests/model/autograd_decoder.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/zeros.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/str_replace.h"

namespace tandem::model::test {

AutogradDecoder::AutogradDecoder(const DecoderConfig& config,
                                 const std::map<std::string, at::Tensor>& parameters, bool packs_documents,
                                 bool has_targets)
    : config_(config),
      packs_documents_(packs_documents),
      has_targets_(has_targets),
      router_losses_(at::zeros({}, at::kDouble)) {
  for (const auto& [name, parameter] : parameters) {
    parameters_[name] =
        parameter.requires_grad()
            ? parameter
            : parameter.detach().to(at::kDouble, /*non_blocking=*/false, /*copy=*/true).requires_grad_();
  }
}

at::Tensor AutogradDecoder::Loss(const at::Tensor& tokens) const {
  router_losses_ = at::zeros({}, at::kDouble);
  sequences_ = tokens.size(0);
  const at::Tensor embedded = Embedding(tokens);
  at::Tensor x = embedded;
  for (int layer = 0; layer < config_.num_hidden_layers; ++layer) {
    x = Layer(layer, x, tokens);
  }
  depth_losses_.clear();
  at::Tensor hidden = Norm(x, "model.norm");
  const at::Tensor loss = Head(hidden, tokens, /*depth=*/0);
  for (int depth = 1; depth <= config_.depths.number; ++depth) {
    hidden = Depth(depth, hidden, embedded, tokens);
    depth_losses_.push_back(Head(hidden, tokens, depth));
  }
  if (has_targets_) {
    const int64_t length = LengthOf(tokens);
    const at::Tensor counted = tokens.narrow(1, length + 1, length) >= 0;
    router_losses_ = router_losses_ * counted.to(at::kDouble).mean();
  }
  return loss;
}

at::Tensor AutogradDecoder::Layer(int layer, const at::Tensor& x, const at::Tensor& tokens) const {
  const std::vector<LayerSymbol> usual = {
      LayerSymbol::kAttention, config_.IsSparse(layer) ? LayerSymbol::kExperts : LayerSymbol::kMlp};
  const bool numbers = layer >= config_.num_hidden_layers && config_.depths.numbers_letters;
  at::Tensor hidden = x;
  int letter = 0;
  for (const LayerSymbol symbol : config_.pattern.empty() ? usual : config_.pattern.at(layer)) {
    letter_ = numbers ? "layers." + std::to_string(letter++) + "." : "";
    hidden = symbol == LayerSymbol::kMamba        ? Mamba(layer, hidden, tokens)
             : symbol == LayerSymbol::kGatedDelta ? GatedDelta(layer, hidden, tokens)
             : symbol == LayerSymbol::kExperts    ? Experts(layer, hidden)
             : symbol == LayerSymbol::kMlp        ? Mlp(layer, hidden)
                                                  : Attention(layer, hidden, tokens);
  }
  letter_ = "";
  return hidden;
}

// hidden: h[depth - 1]; returns h[depth] (model/depths.h). [T, H]
at::Tensor AutogradDecoder::Depth(int depth, const at::Tensor& hidden, const at::Tensor& embedded,
                                  const at::Tensor& tokens) const {
  const int layer = static_cast<int>(config_.num_hidden_layers) + depth - 1;
  const bool detached = config_.depths.detached;
  const at::Tensor before = detached && depth == 1 ? hidden.detach() : hidden;
  const at::Tensor all =
      (detached ? embedded.detach() : embedded).view({tokens.size(0), LengthOf(tokens), config_.hidden_size});
  const at::Tensor ahead = Norm(all.narrow(1, depth, all.size(1) - depth), LayerPrefix(layer) + "enorm");
  const at::Tensor padded = at::cat({ahead, at::zeros({all.size(0), depth, all.size(2)}, at::kDouble)}, 1);
  const at::Tensor both =
      at::cat({padded.view(hidden.sizes()), Norm(before, LayerPrefix(layer) + "hnorm")}, -1);
  const at::Tensor x = Project(both, LayerPrefix(layer) + "eh_proj");
  return Norm(Layer(layer, x, tokens), LayerPrefix(layer) + "shared_head.norm");
}

at::Tensor AutogradDecoder::LossesOfDepths() const {
  at::Tensor sum = at::zeros({}, at::kDouble);
  for (const at::Tensor& loss : depth_losses_) {
    sum = sum + loss * config_.depths.loss_weight / static_cast<double>(config_.depths.number);
  }
  return sum;
}

std::string AutogradDecoder::LayerPrefix(int layer) const {
  return "model.layers." + std::to_string(layer) + "." + letter_;
}

const at::Tensor& AutogradDecoder::Of(const std::string& name) const {
  if (config_.names == ParameterNames::kQwen3Next) {
    return parameters_.at(absl::StrReplaceAll(
        name, {{"linear_attn_layernorm", "input_layernorm"}, {"shared_experts.", "shared_expert."}}));
  }
  if (config_.names != ParameterNames::kMixer) {
    return parameters_.at(name);
  }
  return parameters_.at(absl::StrReplaceAll(name, {{"model.embed_tokens.", "backbone.embeddings."},
                                                   {"model.norm.", "backbone.norm_f."},
                                                   {"model.layers.", "backbone.layers."},
                                                   {"input_layernorm", "norm"},
                                                   {"post_attention_layernorm", "norm"},
                                                   {"mamba_layernorm", "norm"},
                                                   {"self_attn.", "mixer."},
                                                   {"mlp.", "mixer."},
                                                   {"mamba.", "mixer."}}));
}

int64_t AutogradDecoder::LengthOf(const at::Tensor& tokens) const {
  return (tokens.size(1) - 1) / (1 + int64_t{packs_documents_} + int64_t{has_targets_});
}

at::Tensor AutogradDecoder::Embedding(const at::Tensor& tokens) const {
  const at::Tensor inputs = tokens.narrow(1, 0, LengthOf(tokens)).reshape({-1});
  return Of("model.embed_tokens.weight").index_select(0, inputs) * config_.embedding_multiplier;
}

at::Tensor AutogradDecoder::Attention(int layer, const at::Tensor& x, const at::Tensor& tokens) const {
  const int64_t sequences = tokens.size(0);
  const int64_t length = LengthOf(tokens);
  const at::Tensor normed = config_.norms_after ? x : Norm(x, LayerPrefix(layer) + "input_layernorm");
  const std::string prefix = LayerPrefix(layer) + "self_attn.";
  if (config_.latent.kv_rank > 0) {
    return x + LatentAttention(prefix, normed, tokens);
  }
  const auto heads = [&](const char* name, int64_t count) {
    at::Tensor projected = Project(normed, prefix + name);
    if (config_.qkv_bias) {
      projected = projected + Of(prefix + name + ".bias");
    }
    if (config_.qk_norm == QkNorm::kWhole && name[0] != 'v') {
      projected = Norm(projected, prefix + name[0] + "_norm");
    }
    return projected.view({sequences, length, count, config_.head_dim}).transpose(1, 2);
  };
  const int64_t group = config_.num_attention_heads / config_.num_key_value_heads;
  const auto normed_heads = [&](const char* name, int64_t count, const char* norm) {
    const at::Tensor projected = heads(name, count);
    const at::Tensor normed_too =
        config_.qk_norm == QkNorm::kHead ? Norm(projected, prefix + norm) : projected;
    if (!config_.rotates) {
      return normed_too;
    }
    const auto rotary =
        static_cast<int64_t>(config_.partial_rotary_factor * static_cast<double>(config_.head_dim));
    return at::cat(
        {Rotate(normed_too.narrow(3, 0, rotary)), normed_too.narrow(3, rotary, config_.head_dim - rotary)},
        -1);
  };
  // [B, heads, S, d]; of a head that is gated, the gate behind the query.
  at::Tensor gate;
  at::Tensor q;
  if (config_.attention_gate) {
    const at::Tensor pairs = Project(normed, prefix + "q_proj")
                                 .view({sequences, length, config_.num_attention_heads, 2, config_.head_dim});
    gate = pairs.select(3, 1).reshape({sequences * length, -1});
    const at::Tensor normed_too = Norm(pairs.select(3, 0).transpose(1, 2), prefix + "q_norm");
    q = config_.rotates ? Rotate(normed_too) : normed_too;
  } else {
    q = normed_heads("q_proj", config_.num_attention_heads, "q_norm");
  }
  const at::Tensor k =
      normed_heads("k_proj", config_.num_key_value_heads, "k_norm").repeat_interleave(group, 1);
  const at::Tensor v = heads("v_proj", config_.num_key_value_heads).repeat_interleave(group, 1);
  const at::Tensor context =
      CausalAttention(q, k, v, tokens, config_.HasWindow(layer) ? config_.sliding_window : length);
  at::Tensor made = Project(gate.defined() ? context * at::sigmoid(gate) : context, prefix + "o_proj");
  if (config_.output_bias) {
    made = made + parameters_.at(prefix + "o_proj.bias");
  }
  return x + (config_.norms_after ? Norm(made, LayerPrefix(layer) + "post_attention_layernorm")
                                  : made * config_.residual_multiplier);
}

// window: the most rows that a row sees. q, k, v: [B, heads, S, d]; returns [T, heads * d].
at::Tensor AutogradDecoder::CausalAttention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                            const at::Tensor& tokens, int64_t window) const {
  const int64_t length = q.size(2);
  const at::Tensor ones = at::ones({length, length}, at::kBool);
  at::Tensor hidden = ones.triu(1).logical_or(ones.tril(-window));
  if (packs_documents_) {
    const at::Tensor starts =
        tokens.narrow(1, (has_targets_ ? 2 : 1) * length + 1, length).view({q.size(0), 1, length, 1});
    hidden = hidden.logical_or(at::arange(length, at::kLong) < starts);  // [B, 1, S, S]
  }
  const double scale = config_.attention_multiplier > 0
                           ? config_.attention_multiplier
                           : 1 / std::sqrt(static_cast<double>(config_.head_dim));
  const at::Tensor scores = (at::matmul(q, k.transpose(2, 3)) * scale)
                                .masked_fill(hidden, -std::numeric_limits<double>::infinity());
  const at::Tensor context = at::matmul(at::softmax(scores, -1), v);
  return context.transpose(1, 2).reshape({q.size(0) * length, -1});
}

// As transformers' DeepseekV3Attention.
at::Tensor AutogradDecoder::LatentAttention(const std::string& prefix, const at::Tensor& normed,
                                            const at::Tensor& tokens) const {
  const auto& latent = config_.latent;
  const int64_t sequences = tokens.size(0);
  const int64_t length = LengthOf(tokens);
  const auto heads = [&](const at::Tensor& projected) {
    return projected.view({sequences, length, config_.num_attention_heads, -1}).transpose(1, 2);
  };
  const auto latent_norm = [&](const at::Tensor& narrow, const char* name) {
    return narrow * (narrow.square().mean(-1, true) + 1e-6).rsqrt() * Of(prefix + name + ".weight");
  };
  const at::Tensor query = heads(
      latent.query_rank > 0
          ? Project(latent_norm(Project(normed, prefix + "q_a_proj"), "q_a_layernorm"), prefix + "q_b_proj")
          : Project(normed, prefix + "q_proj"));
  const at::Tensor down = Project(normed, prefix + "kv_a_proj_with_mqa");
  const at::Tensor key_value =
      heads(Project(latent_norm(down.narrow(1, 0, latent.kv_rank), "kv_a_layernorm"), prefix + "kv_b_proj"));
  const at::Tensor shared = down.narrow(1, latent.kv_rank, latent.rotary_head_dim)
                                .view({sequences, length, 1, latent.rotary_head_dim})
                                .transpose(1, 2);
  const auto deinterleaved = [](const at::Tensor& x) {
    const at::Tensor pairs = x.reshape({x.size(0), x.size(1), x.size(2), x.size(3) / 2, 2});
    return at::cat({pairs.select(4, 0), pairs.select(4, 1)}, -1);
  };
  const int64_t content = latent.content_head_dim;
  const at::Tensor q = at::cat(
      {query.narrow(3, 0, content), Rotate(deinterleaved(query.narrow(3, content, latent.rotary_head_dim)))},
      -1);
  const at::Tensor k =
      at::cat({key_value.narrow(3, 0, content),
               Rotate(deinterleaved(shared))
                   .expand({sequences, config_.num_attention_heads, length, latent.rotary_head_dim})},
              -1);
  const at::Tensor v = key_value.narrow(3, content, latent.value_head_dim);
  return Project(CausalAttention(q, k, v, tokens, length), prefix + "o_proj");
}

// The first token of the document of token t.
int64_t AutogradDecoder::StartOf(const at::Tensor& tokens, int64_t sequence, int64_t t) const {
  const int64_t column = (has_targets_ ? 2 : 1) * LengthOf(tokens) + 1 + t;
  return packs_documents_ ? tokens[sequence][column].item<int64_t>() : 0;
}

at::Tensor AutogradDecoder::Mlp(int layer, const at::Tensor& x) const {
  const std::string prefix = LayerPrefix(layer);
  if (config_.activation == Activation::kSquaredRelu) {
    const at::Tensor raised = Project(Norm(x, prefix + "post_attention_layernorm"), prefix + "mlp.up_proj");
    return x + Project(raised.relu().square(), prefix + "mlp.down_proj") * config_.residual_multiplier;
  }
  if (config_.norms_after) {
    return x + Norm(Gated(x, prefix + "mlp.gate_proj", prefix + "mlp.up_proj", prefix + "mlp.down_proj"),
                    prefix + "post_feedforward_layernorm");
  }
  const at::Tensor normed = Norm(x, prefix + "post_attention_layernorm");
  return x + Gated(normed, prefix + "mlp.gate_proj", prefix + "mlp.up_proj", prefix + "mlp.down_proj") *
                 config_.residual_multiplier;
}

at::Tensor AutogradDecoder::Gated(const at::Tensor& x, const std::string& gate, const std::string& up,
                                  const std::string& down) const {
  return Project(at::silu(Project(x, gate)) * Project(x, up), down);
}

at::Tensor AutogradDecoder::Head(const at::Tensor& hidden, const at::Tensor& tokens, int depth) const {
  const int64_t length = LengthOf(tokens);
  const int64_t rows = length - depth;
  const at::Tensor targets = tokens.narrow(1, (has_targets_ ? length + 1 : 1) + depth, rows).reshape({-1});
  at::Tensor weight = Of(config_.tie_word_embeddings ? "model.embed_tokens.weight" : "lm_head.weight");
  if (depth > 0 && config_.depths.detached) {
    weight = weight.detach();
  }
  const at::Tensor predicting =
      hidden.view({tokens.size(0), length, -1}).narrow(1, 0, rows).reshape({-1, hidden.size(1)});
  return at::cross_entropy_loss(at::matmul(predicting, weight.t()) / config_.logits_scaling, targets,
                                /*weight=*/{}, at::Reduction::Sum, /*ignore_index=*/-1) /
         static_cast<double>(targets.numel());
}

at::Tensor AutogradDecoder::Project(const at::Tensor& x, const std::string& name) const {
  return at::matmul(x, Of(name + ".weight").t());
}

at::Tensor AutogradDecoder::Norm(const at::Tensor& x, const std::string& name) const {
  return x * (x.square().mean(-1, true) + config_.rms_norm_eps).rsqrt() *
         (Of(name + ".weight") + (config_.norms_add_one ? 1.0 : 0.0));
}

at::Tensor AutogradDecoder::Rotate(const at::Tensor& x) const {
  const int64_t dim = x.size(3);
  const at::Tensor frequencies =
      at::pow(config_.rope_theta, at::arange(0, dim, 2, at::kDouble) / dim).reciprocal();
  const at::Tensor angles = at::arange(x.size(2), at::kDouble).unsqueeze(1) * frequencies;
  const at::Tensor twice = at::cat({angles, angles}, -1);
  const at::Tensor turned = at::cat({-x.narrow(-1, dim / 2, dim / 2), x.narrow(-1, 0, dim / 2)}, -1);
  return x * twice.cos() + turned * twice.sin();
}

}  // namespace tandem::model::test
