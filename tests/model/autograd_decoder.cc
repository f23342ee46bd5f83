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
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/softplus.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/topk.h>
#include <ATen/ops/zeros.h>

#include <cmath>
#include <limits>
#include <tuple>
#include <vector>

#include "absl/strings/str_replace.h"

namespace tandem::model::test {
namespace {

// Row t of silu of a causal convolution of read, [S, channels], from row `start` on. conv: [channels, width].
at::Tensor Convolved(const at::Tensor& read, const at::Tensor& conv, const at::Tensor& bias, int64_t start,
                     int64_t t) {
  at::Tensor sum = bias;
  for (int64_t j = 0; j < conv.size(1); ++j) {
    const int64_t from = t - conv.size(1) + 1 + j;
    sum = from < start ? sum : sum + conv.select(1, j) * read[from];
  }
  return at::silu(sum);
}

}  // namespace

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

// Token by token: a convolution and a recurrence as their formulas have them.
at::Tensor AutogradDecoder::Mamba(int layer, const at::Tensor& x, const at::Tensor& tokens) const {
  const MambaMixer& m = config_.mamba;
  const std::string prefix = LayerPrefix(layer) + "mamba.";
  const int64_t sequences = tokens.size(0);
  const int64_t length = LengthOf(tokens);
  const int64_t inner = m.heads * m.head_dim;
  const int64_t channels = inner + 2 * m.groups * m.state;
  const at::Tensor projected = Project(Norm(x, LayerPrefix(layer) + "mamba_layernorm"), prefix + "in_proj")
                                   .view({sequences, length, -1});
  const at::Tensor read = projected.narrow(2, inner, channels);
  const at::Tensor conv = Of(prefix + "conv1d.weight").view({channels, m.conv_width});
  const at::Tensor dt = at::softplus(projected.narrow(2, inner + channels, m.heads) + Of(prefix + "dt_bias"))
                            .clamp_min(m.least_step);
  const at::Tensor decays = (-dt * Of(prefix + "A_log").exp()).exp();
  std::vector<at::Tensor> rows;
  for (int64_t sequence = 0; sequence < sequences; ++sequence) {
    at::Tensor state;
    for (int64_t t = 0; t < length; ++t) {
      const int64_t start = StartOf(tokens, sequence, t);
      if (t == start) {
        state = at::zeros({m.heads, m.head_dim, m.state}, at::kDouble);
      }
      const at::Tensor xbc = Convolved(read[sequence], conv, Of(prefix + "conv1d.bias"), start, t);
      const auto vectors = [&](int64_t first) {  // [heads, 1, state]
        return xbc.narrow(0, first, m.groups * m.state)
            .view({m.groups, 1, m.state})
            .repeat_interleave(m.heads / m.groups, 0);
      };
      const at::Tensor own = xbc.narrow(0, 0, inner).view({m.heads, m.head_dim, 1});
      const auto of_heads = [&](const at::Tensor& numbers) { return numbers.view({m.heads, 1, 1}); };
      state = state * of_heads(decays[sequence][t]) + own * of_heads(dt[sequence][t]) * vectors(inner);
      const at::Tensor y = (state * vectors(inner + m.groups * m.state)).sum(2, /*keepdim=*/true) +
                           own * of_heads(Of(prefix + "D"));
      rows.push_back(y.reshape({inner}));
    }
  }
  const at::Tensor gated = (at::stack(rows) * at::silu(projected.narrow(2, 0, inner).reshape({-1, inner})))
                               .view({-1, m.groups, inner / m.groups});
  const at::Tensor normed =
      (gated * (gated.square().mean(-1, true) + config_.rms_norm_eps).rsqrt()).view({-1, inner});
  return x + Project(normed * Of(prefix + "norm.weight"), prefix + "out_proj") * config_.residual_multiplier;
}

// Token by token, as Qwen3-Next has it.
at::Tensor AutogradDecoder::GatedDelta(int layer, const at::Tensor& x, const at::Tensor& tokens) const {
  const GatedDeltaNet& d = config_.delta;
  const std::string prefix = LayerPrefix(layer) + "linear_attn.";
  const int64_t sequences = tokens.size(0);
  const int64_t length = LengthOf(tokens);
  const int64_t share = d.value_heads / d.key_heads;
  const int64_t keys = d.key_heads * d.key_dim;
  const int64_t values = d.value_heads * d.value_dim;
  const at::Tensor normed = Norm(x, LayerPrefix(layer) + "linear_attn_layernorm");
  const at::Tensor qkvz =
      Project(normed, prefix + "in_proj_qkvz")
          .view({sequences, length, d.key_heads, 2 * d.key_dim + 2 * share * d.value_dim});
  const at::Tensor ba =
      Project(normed, prefix + "in_proj_ba").view({sequences, length, d.key_heads, 2 * share});
  const auto columns = [&](int64_t first, int64_t count) {
    return qkvz.narrow(3, first, count).reshape({sequences, length, -1});
  };
  const at::Tensor read = at::cat(
      {columns(0, d.key_dim), columns(d.key_dim, d.key_dim), columns(2 * d.key_dim, share * d.value_dim)}, 2);
  const at::Tensor z = columns(2 * d.key_dim + share * d.value_dim, share * d.value_dim)
                           .reshape({-1, d.value_heads, d.value_dim});
  const auto gates = [&](int64_t first) {
    return ba.narrow(3, first, share).reshape({sequences, length, d.value_heads});
  };
  const at::Tensor beta = at::sigmoid(gates(0));
  const at::Tensor decays =
      (-Of(prefix + "A_log").exp() * at::softplus(gates(share) + Of(prefix + "dt_bias"))).exp();
  const at::Tensor conv = Of(prefix + "conv1d.weight").view({2 * keys + values, d.conv_width});
  const auto of_length_one = [](const at::Tensor& rows) {
    return rows * (rows.square().sum(-1, /*keepdim=*/true) + 1e-6).rsqrt();
  };
  std::vector<at::Tensor> rows;
  for (int64_t sequence = 0; sequence < sequences; ++sequence) {
    at::Tensor state;
    for (int64_t t = 0; t < length; ++t) {
      const int64_t start = StartOf(tokens, sequence, t);
      if (t == start) {
        state = at::zeros({d.value_heads, d.key_dim, d.value_dim}, at::kDouble);
      }
      const at::Tensor convolved =
          Convolved(read[sequence], conv, at::zeros({2 * keys + values}, at::kDouble), start, t);
      const auto of_keys = [&](int64_t first) {  // [value heads, key_dim, 1]
        return of_length_one(convolved.narrow(0, first, keys).view({d.key_heads, d.key_dim}))
            .repeat_interleave(share, 0)
            .unsqueeze(2);
      };
      const at::Tensor q = of_keys(0) / std::sqrt(static_cast<double>(d.key_dim));
      const at::Tensor k = of_keys(keys);
      const at::Tensor v = convolved.narrow(0, 2 * keys, values).view({d.value_heads, 1, d.value_dim});
      state = state * decays[sequence][t].view({d.value_heads, 1, 1});
      const at::Tensor missed = v - (state * k).sum(1, /*keepdim=*/true);
      state = state + k * (beta[sequence][t].view({d.value_heads, 1, 1}) * missed);
      rows.push_back((state * q).sum(1));
    }
  }
  const at::Tensor y = at::stack(rows);  // [tokens, value heads, value_dim]
  const at::Tensor gated = y * (y.square().mean(-1, /*keepdim=*/true) + config_.rms_norm_eps).rsqrt() *
                           Of(prefix + "norm.weight") * at::silu(z);
  return x + Project(gated.reshape({-1, values}), prefix + "out_proj");
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
