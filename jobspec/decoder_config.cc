// SPDX-License-Identifier: Apache-2.0
#include "jobspec/decoder_config.h"

#include <map>
#include <stdexcept>
#include <string>

#include "absl/strings/str_cat.h"

namespace tandem::jobspec {
namespace {

model::Architecture ArchitectureOf(const std::string& model_type) {
  static const std::map<std::string, model::Architecture> architectures = {
      {"llama", model::Architecture::kLlama},
      {"mixtral", model::Architecture::kMixtral},
      {"qwen3_moe", model::Architecture::kQwen3Moe},
      {"deepseek_v3", model::Architecture::kDeepseekV3}};
  const auto found = architectures.find(model_type);
  if (found == architectures.end()) {
    throw std::logic_error(absl::StrCat("model.model_type: no plan for ", model_type));
  }
  return found->second;
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

model::MixtureOfExperts Moe(const v1::MixtureOfExperts& spec, bool deepseek) {
  model::MixtureOfExperts moe{
      .router = {.experts = spec.num_experts(),
                 .top_k = spec.num_experts_per_tok(),
                 .normalize = spec.norm_topk_prob()},
      .intermediate_size = spec.moe_intermediate_size(),
      .decoder_sparse_step = spec.decoder_sparse_step(),
      .router_aux_loss_coef = spec.router_aux_loss_coef(),
      .balance_scope = ScopeOf(spec.router_aux_loss_scope()),
      .router_z_loss_coef = spec.router_z_loss_coef(),
      .capacity = {.factor = spec.capacity_factor(),
                   .policy = spec.drop_policy() == v1::DROP_POLICY_POSITION ? ops::DropPolicy::kPosition
                                                                            : ops::DropPolicy::kProbability,
                   .pads = spec.pad_to_capacity()}};
  if (deepseek) {
    moe.router.score = ops::RouterScore::kSigmoid;
    moe.router.groups = spec.n_group();
    moe.router.groups_per_token = spec.topk_group();
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

}  // namespace

model::DecoderConfig ModelConfigOf(const v1::Model& resolved) {
  return {
      .architecture = ArchitectureOf(resolved.model_type()),
      .hidden_size = resolved.hidden_size(),
      .intermediate_size = resolved.intermediate_size(),
      .num_hidden_layers = resolved.num_hidden_layers(),
      .num_attention_heads = resolved.num_attention_heads(),
      .num_key_value_heads = resolved.num_key_value_heads(),
      .head_dim = resolved.head_dim(),
      .vocab_size = resolved.vocab_size(),
      .rms_norm_eps = resolved.rms_norm_eps(),
      .rope_theta = resolved.rope_theta(),
      .rope_scaling = resolved.has_rope_scaling() ? Scaling(resolved.rope_scaling()) : ops::RopeScaling(),
      .tie_word_embeddings = resolved.tie_word_embeddings(),
      .initializer_range = resolved.initializer_range(),
      .moe = resolved.has_moe() ? Moe(resolved.moe(), resolved.model_type() == "deepseek_v3")
                                : model::MixtureOfExperts(),
      .latent =
          resolved.has_latent_attention() ? Latent(resolved.latent_attention()) : model::LatentAttention(),
  };
}

}  // namespace tandem::jobspec
