// SPDX-License-Identifier: Apache-2.0
#include "jobspec/decoder_config.h"

#include <algorithm>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "jobspec/model_types.h"

namespace tandem::jobspec {
namespace {

// A job that was resolved before a field was there has the value of its type.
model::QkNorm QkNormOf(const v1::Model& model, const ModelType& type) {
  const v1::QkNorm norm = model.has_qk_norm() ? model.qk_norm() : type.qk_norm;
  return norm == v1::QK_NORM_HEAD    ? model::QkNorm::kHead
         : norm == v1::QK_NORM_WHOLE ? model::QkNorm::kWhole
                                     : model::QkNorm::kNone;
}

model::BalanceScope ScopeOf(v1::BalanceScope scope) {
  switch (scope) {
    case v1::BALANCE_SCOPE_MICROBATCH:
    case v1::BALANCE_SCOPE_UNSPECIFIED:  // of a job that was resolved before there were others
      return model::BalanceScope::kMicrobatch;
    case v1::BALANCE_SCOPE_SEQUENCE:
      return model::BalanceScope::kSequence;
    case v1::BALANCE_SCOPE_GLOBAL:
      return model::BalanceScope::kGlobal;
    default:
      throw std::logic_error(
          absl::StrCat("model.moe.router_aux_loss_scope: no plan for ", v1::BalanceScope_Name(scope)));
  }
}

model::MixtureOfExperts Moe(const v1::MixtureOfExperts& spec, const ModelType& type) {
  const v1::RouterScore score = spec.has_score() ? spec.score() : type.score;
  model::MixtureOfExperts moe{
      .router = {.experts = spec.num_experts(),
                 .top_k = spec.num_experts_per_tok(),
                 .score = score == v1::ROUTER_SCORE_SIGMOID ? ops::RouterScore::kSigmoid
                                                            : ops::RouterScore::kSoftmax,
                 .normalize = spec.norm_topk_prob()},
      .intermediate_size = spec.moe_intermediate_size(),
      .decoder_sparse_step = spec.decoder_sparse_step(),
      .shared_intermediate_size = spec.shared_expert_intermediate_size(),
      .router_aux_loss_coef = spec.router_aux_loss_coef(),
      .balance_scope = ScopeOf(spec.router_aux_loss_scope()),
      .router_z_loss_coef = spec.router_z_loss_coef(),
      .capacity = {.factor = spec.capacity_factor(),
                   .policy = spec.drop_policy() == v1::DROP_POLICY_POSITION ? ops::DropPolicy::kPosition
                                                                            : ops::DropPolicy::kProbability,
                   .pads = spec.pad_to_capacity()}};
  moe.shared_gate = spec.shared_expert_gate();
  if (type.has_latent_attention) {
    moe.router.groups = spec.n_group();
    moe.router.groups_per_token = spec.topk_group();
    moe.router.best_of_group = score == v1::ROUTER_SCORE_SIGMOID ? 2 : 1;
    moe.router.scale = spec.routed_scaling_factor();
    moe.router_bias_update_rate = spec.router_bias_update_rate();
    moe.first_k_dense_replace = spec.first_k_dense_replace();
    moe.shared_intermediate_size = spec.n_shared_experts() * spec.moe_intermediate_size();
  }
  return moe;
}

ops::RopeScaling Scaling(const v1::RopeScaling& spec) {
  const bool llama3 = spec.type() == v1::ROPE_TYPE_LLAMA3;
  const bool yarn = spec.type() == v1::ROPE_TYPE_YARN;
  return {.type = llama3 ? ops::RopeScalingType::kLlama3
                  : yarn ? ops::RopeScalingType::kYarn
                         : ops::RopeScalingType::kLinear,
          .factor = spec.factor(),
          .original_length = static_cast<double>(spec.original_max_position_embeddings()),
          .low_freq_factor = spec.low_freq_factor(),
          .high_freq_factor = spec.high_freq_factor(),
          .beta_fast = spec.beta_fast(),
          .beta_slow = spec.beta_slow(),
          .truncate = spec.truncate(),
          .attention_factor = spec.attention_factor(),
          .mscale = spec.mscale(),
          .mscale_all_dim = spec.mscale_all_dim()};
}

model::LatentAttention Latent(const v1::LatentAttention& spec) {
  return {.query_rank = spec.q_lora_rank(),
          .kv_rank = spec.kv_lora_rank(),
          .content_head_dim = spec.qk_nope_head_dim(),
          .rotary_head_dim = spec.qk_rope_head_dim(),
          .value_head_dim = spec.v_head_dim()};
}

model::MambaMixer Mixer(const v1::Mamba& spec, const ModelType& type) {
  return {.heads = spec.num_heads(),
          .head_dim = spec.head_dim(),
          .state = spec.state_size(),
          .groups = spec.n_groups(),
          .conv_width = spec.conv_kernel(),
          .chunk = spec.chunk_size(),
          .least_step = type.least_step};
}

model::GatedDeltaNet DeltaNet(const v1::GatedDeltaNet& spec) {
  return {.key_heads = spec.num_key_heads(),
          .value_heads = spec.num_value_heads(),
          .key_dim = spec.key_head_dim(),
          .value_dim = spec.value_head_dim(),
          .conv_width = spec.conv_kernel(),
          .chunk = spec.chunk_size()};
}

std::vector<std::vector<model::LayerSymbol>> SymbolsOf(const v1::Model& resolved) {
  std::vector<std::vector<model::LayerSymbol>> layers;
  if (const std::optional<model::LayerPattern> pattern = PatternOf(resolved); pattern.has_value()) {
    for (const model::LogicalLayer& layer : model::LayersOf(*pattern)) {
      layers.push_back(layer.symbols);
    }
    layers.insert(layers.end(), pattern->num_depths, pattern->depth);
  }
  return layers;
}

model::PredictionDepths DepthsOf(const v1::Model& resolved) {
  const std::optional<model::LayerPattern> pattern = PatternOf(resolved);
  if (!pattern.has_value()) {
    return {};
  }
  const auto count = [&](model::LayerSymbol symbol) {
    return std::count(pattern->depth.begin(), pattern->depth.end(), symbol);
  };
  const bool collides = std::any_of(pattern->depth.begin(), pattern->depth.end(),
                                    [&](model::LayerSymbol symbol) { return count(symbol) > 1; }) ||
                        (count(model::LayerSymbol::kMlp) > 0 && count(model::LayerSymbol::kExperts) > 0);
  return {.number = pattern->num_depths, .numbers_letters = collides};
}

model::ParameterNames NamesOf(const std::string& model_type, bool norms_after) {
  return norms_after                                            ? model::ParameterNames::kOlmo2
         : model_type == "mixtral"                              ? model::ParameterNames::kMixtral
         : model_type == "granitemoehybrid"                     ? model::ParameterNames::kGranite
         : model_type == "bamba"                                ? model::ParameterNames::kBamba
         : model_type == "mamba2" || model_type == "nemotron_h" ? model::ParameterNames::kMixer
         : model_type == "qwen3_next"                           ? model::ParameterNames::kQwen3Next
                                                                : model::ParameterNames::kUsual;
}

}  // namespace

model::DecoderConfig ModelConfigOf(const v1::Model& resolved) {
  const ModelType* const type = FindModelType(resolved.model_type());
  if (type == nullptr) {
    throw std::logic_error(absl::StrCat("model.model_type: no plan for ", resolved.model_type()));
  }
  const int64_t layers = resolved.num_hidden_layers();
  const v1::AttentionBias bias =
      resolved.has_attention_bias() ? resolved.attention_bias() : type->attention_bias;
  const bool norms_after = (resolved.has_norms() ? resolved.norms() : type->norms) == v1::NORM_PLACE_AFTER;
  return {
      .names = NamesOf(resolved.model_type(), norms_after),
      .hidden_size = resolved.hidden_size(),
      .intermediate_size = resolved.intermediate_size(),
      .num_hidden_layers = layers,
      .num_attention_heads = resolved.num_attention_heads(),
      .num_key_value_heads = resolved.num_key_value_heads(),
      .head_dim = resolved.head_dim(),
      .vocab_size = resolved.vocab_size(),
      .rms_norm_eps = resolved.rms_norm_eps(),
      .rope_theta = resolved.rope_theta(),
      .rope_scaling = resolved.has_rope_scaling() ? Scaling(resolved.rope_scaling()) : ops::RopeScaling(),
      .qkv_bias = bias != v1::ATTENTION_BIAS_NONE,
      .output_bias = bias == v1::ATTENTION_BIAS_ALL,
      .qk_norm = QkNormOf(resolved, *type),
      .attention_gate = resolved.attention_gate(),
      .norms_add_one = resolved.norms_add_one(),
      .norms_after = norms_after,
      .sliding_window = resolved.sliding_window(),
      .window_layers = resolved.has_sliding_window()
                           ? WindowLayersIn(resolved.window_layers(), layers).value()
                           : std::vector<int64_t>(),
      .rotates = type->rotates && (!resolved.has_rotary_embedding() || resolved.rotary_embedding()),
      .partial_rotary_factor = resolved.has_partial_rotary_factor() ? resolved.partial_rotary_factor() : 1,
      .embedding_multiplier = resolved.has_embedding_multiplier() ? resolved.embedding_multiplier() : 1,
      .attention_multiplier = resolved.attention_multiplier(),
      .residual_multiplier = resolved.has_residual_multiplier() ? resolved.residual_multiplier() : 1,
      .logits_scaling = resolved.has_logits_scaling() ? resolved.logits_scaling() : 1,
      .activation = resolved.model_type() == "nemotron_h" ? model::Activation::kSquaredRelu
                                                          : model::Activation::kSwiGlu,
      .tie_word_embeddings = resolved.tie_word_embeddings(),
      .initializer_range = resolved.initializer_range(),
      .moe = resolved.has_moe() ? Moe(resolved.moe(), *type) : model::MixtureOfExperts(),
      .latent =
          resolved.has_latent_attention() ? Latent(resolved.latent_attention()) : model::LatentAttention(),
      .mamba = resolved.has_mamba() ? Mixer(resolved.mamba(), *type) : model::MambaMixer(),
      .delta = resolved.has_gated_delta_net() ? DeltaNet(resolved.gated_delta_net()) : model::GatedDeltaNet(),
      .depths = DepthsOf(resolved),
      .pattern = SymbolsOf(resolved),
  };
}

}  // namespace tandem::jobspec
