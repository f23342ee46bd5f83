// SPDX-License-Identifier: Apache-2.0
#include "jobspec/hugging_face_families.h"

namespace tandem::jobspec {
namespace {

using FamilyJson = nlohmann::json;

// tests/e2e/test_config_json_keys.py compares these with transformers' own classes.
constexpr HuggingFaceFamily kFamilies[] = {
    {.architecture = "LlamaForCausalLM", .model_type = "llama", .defaults = R"({
       "vocab_size": 32000, "hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 32,
       "num_attention_heads": 32, "max_position_embeddings": 2048, "initializer_range": 0.02,
       "rms_norm_eps": 1e-6, "rope_theta": 10000, "tie_word_embeddings": false})"},
    {.architecture = "MixtralForCausalLM",
     .model_type = "mixtral",
     .defaults = R"({
       "vocab_size": 32000, "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
       "num_attention_heads": 32, "num_key_value_heads": 8, "max_position_embeddings": 131072,
       "initializer_range": 0.02, "rms_norm_eps": 1e-5, "rope_theta": 1000000, "tie_word_embeddings": false,
       "num_local_experts": 8, "num_experts_per_tok": 2})",
     .experts = "num_local_experts",
     .experts_too = "num_experts",
     .window = WindowKeys::kAlways},
    {.architecture = "Qwen3MoeForCausalLM",
     .model_type = "qwen3_moe",
     .defaults = R"({
       "vocab_size": 151936, "hidden_size": 2048, "intermediate_size": 6144, "num_hidden_layers": 24,
       "num_attention_heads": 32, "num_key_value_heads": 4, "max_position_embeddings": 32768,
       "initializer_range": 0.02, "rms_norm_eps": 1e-6, "rope_theta": 10000, "tie_word_embeddings": false,
       "num_experts": 128, "num_experts_per_tok": 8, "moe_intermediate_size": 768, "decoder_sparse_step": 1,
       "norm_topk_prob": false, "sliding_window": 4096})",
     .experts = "num_experts",
     .experts_too = "num_local_experts",
     .window = WindowKeys::kSwitch},
    {.architecture = "DeepseekV3ForCausalLM",
     .model_type = "deepseek_v3",
     .defaults = R"({
       "vocab_size": 129280, "hidden_size": 7168, "intermediate_size": 18432, "num_hidden_layers": 61,
       "num_attention_heads": 128, "num_key_value_heads": 128, "max_position_embeddings": 4096,
       "initializer_range": 0.02, "rms_norm_eps": 1e-6, "rope_theta": 10000, "tie_word_embeddings": false,
       "n_routed_experts": 256, "num_experts_per_tok": 8, "moe_intermediate_size": 2048,
       "norm_topk_prob": true, "n_shared_experts": 1, "routed_scaling_factor": 2.5, "n_group": 8,
       "topk_group": 4, "first_k_dense_replace": 3, "q_lora_rank": 1536, "kv_lora_rank": 512,
       "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128, "rope_interleave": true})",
     .experts = "n_routed_experts",
     .experts_too = "num_local_experts",
     .has_latent_attention = true,
     .must_be = R"({"scoring_func": "sigmoid", "topk_method": "noaux_tc"})"},
    {.architecture = "DeepseekV2ForCausalLM",
     .model_type = "deepseek_v2",
     .defaults = R"({
       "vocab_size": 102400, "hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 32,
       "num_attention_heads": 32, "max_position_embeddings": 2048, "initializer_range": 0.02,
       "rms_norm_eps": 1e-6, "rope_theta": 10000, "tie_word_embeddings": false, "n_routed_experts": 64,
       "moe_intermediate_size": 1407, "norm_topk_prob": false, "n_shared_experts": 2,
       "routed_scaling_factor": 1.0, "first_k_dense_replace": 0, "q_lora_rank": 1536, "kv_lora_rank": 512,
       "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128})",
     .experts = "n_routed_experts",
     .experts_too = "num_experts",
     .has_latent_attention = true,
     .must_be = R"({"scoring_func": "softmax", "topk_method": "greedy", "norm_topk_prob": false})"},
    {.architecture = "MistralForCausalLM",
     .model_type = "mistral",
     .defaults = R"({
       "vocab_size": 32000, "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
       "num_attention_heads": 32, "num_key_value_heads": 8, "max_position_embeddings": 131072,
       "initializer_range": 0.02, "rms_norm_eps": 1e-6, "rope_theta": 10000, "tie_word_embeddings": false,
       "sliding_window": 4096})",
     .window = WindowKeys::kAlways},
    {.architecture = "Qwen2ForCausalLM",
     .model_type = "qwen2",
     .defaults = R"({
       "vocab_size": 151936, "hidden_size": 4096, "intermediate_size": 22016, "num_hidden_layers": 32,
       "num_attention_heads": 32, "num_key_value_heads": 32, "max_position_embeddings": 32768,
       "initializer_range": 0.02, "rms_norm_eps": 1e-6, "rope_theta": 10000, "tie_word_embeddings": false,
       "sliding_window": 4096, "max_window_layers": 28})",
     .window = WindowKeys::kLayers},
    {.architecture = "Qwen3ForCausalLM",
     .model_type = "qwen3",
     .defaults = R"({
       "vocab_size": 151936, "hidden_size": 4096, "intermediate_size": 22016, "num_hidden_layers": 32,
       "num_attention_heads": 32, "num_key_value_heads": 32, "head_dim": 128, "max_position_embeddings": 32768,
       "initializer_range": 0.02, "rms_norm_eps": 1e-6, "rope_theta": 10000, "tie_word_embeddings": false,
       "sliding_window": 4096, "max_window_layers": 28})",
     .window = WindowKeys::kLayers},
    {.architecture = "Olmo2ForCausalLM", .model_type = "olmo2", .defaults = R"({
       "vocab_size": 50304, "hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 32,
       "num_attention_heads": 32, "max_position_embeddings": 2048, "initializer_range": 0.02,
       "rms_norm_eps": 1e-5, "rope_theta": 10000, "tie_word_embeddings": false})"},
    {.architecture = "Mamba2ForCausalLM",
     .model_type = "mamba2",
     .defaults = R"({
       "vocab_size": 32768, "hidden_size": 4096, "num_hidden_layers": 64, "num_heads": 128, "head_dim": 64,
       "state_size": 128, "n_groups": 8, "conv_kernel": 4, "chunk_size": 256, "expand": 2,
       "layer_norm_epsilon": 1e-5, "initializer_range": 0.1, "tie_word_embeddings": false})",
     .own_keys = R"(["num_heads", "state_size", "layer_norm_epsilon", "n_groups", "conv_kernel",
       "chunk_size", "expand", "residual_in_fp32", "rescale_prenorm_residual", "time_step_floor",
       "time_step_max", "time_step_min", "time_step_rank"])",
     .must_be =
         R"({"time_step_limit": [0, {"__float__": "Infinity"}], "use_bias": false, "use_conv_bias": true, "norm_before_gate": false, "rms_norm": true})"},
    {.architecture = "NemotronHForCausalLM",
     .model_type = "nemotron_h",
     .defaults = R"({
       "vocab_size": 131072, "hidden_size": 4096, "intermediate_size": 21504, "num_attention_heads": 32,
       "num_key_value_heads": 8, "head_dim": 128, "max_position_embeddings": 4096, "ssm_state_size": 128,
       "mamba_num_heads": 128, "mamba_head_dim": 64, "n_groups": 8, "conv_kernel": 4, "chunk_size": 128,
       "layer_norm_epsilon": 1e-5, "initializer_range": 0.02,
       "tie_word_embeddings": false,
       "layers_block_type": ["linear_attention", "moe", "full_attention", "mlp"]})",
     .own_keys = R"(["layers_block_type", "hybrid_override_pattern", "mamba_num_heads", "mamba_head_dim",
       "ssm_state_size", "attention_head_dim", "layer_norm_epsilon", "n_groups", "conv_kernel", "chunk_size",
       "expand", "residual_in_fp32", "rescale_prenorm_residual", "time_step_floor", "time_step_limit",
       "time_step_max", "time_step_rank", "use_mamba_kernels", "num_logits_to_keep",
       "mamba_ssm_cache_dtype", "moe_latent_size", "moe_shared_expert_intermediate_size",
       "moe_shared_expert_overlap", "mtp_layers_block_type", "mtp_hybrid_override_pattern"])",
     .must_be =
         R"({"time_step_min": 0.001, "mlp_hidden_act": "relu2", "mamba_hidden_act": "silu", "use_bias": false,
       "mamba_proj_bias": false, "use_conv_bias": true, "hidden_dropout": 0})"},
    {.architecture = "GraniteForCausalLM",
     .model_type = "granite",
     .defaults = R"({
       "vocab_size": 32000, "hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 32,
       "num_attention_heads": 32, "max_position_embeddings": 2048, "initializer_range": 0.02,
       "rms_norm_eps": 1e-6, "rope_theta": 10000, "tie_word_embeddings": false, "embedding_multiplier": 1,
       "attention_multiplier": 1, "residual_multiplier": 1, "logits_scaling": 1})",
     .own_keys =
         R"(["embedding_multiplier", "attention_multiplier", "residual_multiplier", "logits_scaling"])"},
    {.architecture = "GraniteMoeHybridForCausalLM",
     .model_type = "granitemoehybrid",
     .defaults = R"({
       "vocab_size": 32000, "hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 32,
       "num_attention_heads": 32, "max_position_embeddings": 2048, "initializer_range": 0.02,
       "rms_norm_eps": 1e-6, "rope_theta": 10000, "tie_word_embeddings": false, "num_local_experts": 8,
       "num_experts_per_tok": 2, "shared_intermediate_size": 1024, "mamba_n_heads": 128, "mamba_n_groups": 1,
       "mamba_d_state": 256, "mamba_d_head": "auto", "mamba_d_conv": 4, "mamba_expand": 2,
       "mamba_chunk_size": 256, "embedding_multiplier": 1, "attention_multiplier": 1,
       "residual_multiplier": 1, "logits_scaling": 1})",
     .own_keys = R"(["embedding_multiplier", "attention_multiplier", "residual_multiplier", "logits_scaling",
       "layers_block_type", "shared_intermediate_size", "position_embedding_type", "mamba_n_heads",
       "mamba_n_groups", "mamba_d_state", "mamba_d_head", "mamba_d_conv", "mamba_expand", "mamba_chunk_size",
       "init_method"])",
     .must_be = R"({"time_step_limit": [0, {"__float__": "Infinity"}], "mamba_conv_bias": true,
       "mamba_proj_bias": false, "normalization_function": "rmsnorm"})"},
    {.architecture = "BambaForCausalLM",
     .model_type = "bamba",
     .defaults = R"({
       "vocab_size": 128000, "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
       "num_attention_heads": 32, "num_key_value_heads": 8, "max_position_embeddings": 262144,
       "initializer_range": 0.02, "rms_norm_eps": 1e-5, "rope_theta": 10000, "tie_word_embeddings": false,
       "mamba_n_heads": 128, "mamba_n_groups": 1, "mamba_d_state": 256, "mamba_d_head": "auto",
       "mamba_d_conv": 4, "mamba_expand": 2, "mamba_chunk_size": 256})",
     .own_keys = R"(["attn_layer_indices", "mamba_n_heads", "mamba_n_groups", "mamba_d_state", "mamba_d_head",
       "mamba_d_conv", "mamba_expand", "mamba_chunk_size", "num_logits_to_keep", "z_loss_coefficient"])",
     .must_be = R"({"time_step_limit": [0, {"__float__": "Infinity"}], "mamba_conv_bias": true,
       "mamba_proj_bias": false, "partial_rotary_factor": 0.5})"},
    {.architecture = "Qwen3NextForCausalLM",
     .model_type = "qwen3_next",
     .defaults = R"({
       "vocab_size": 151936, "hidden_size": 2048, "intermediate_size": 5632, "num_hidden_layers": 48,
       "num_attention_heads": 16, "num_key_value_heads": 2, "head_dim": 256, "max_position_embeddings": 32768,
       "initializer_range": 0.02, "rms_norm_eps": 1e-6, "rope_theta": 10000, "partial_rotary_factor": 0.25,
       "tie_word_embeddings": false, "full_attention_interval": 4, "linear_num_key_heads": 16,
       "linear_num_value_heads": 32, "linear_key_head_dim": 128, "linear_value_head_dim": 128,
       "linear_conv_kernel_dim": 4, "num_experts": 512, "num_experts_per_tok": 10,
       "moe_intermediate_size": 512, "shared_expert_intermediate_size": 512, "decoder_sparse_step": 1,
       "norm_topk_prob": true})",
     .experts = "num_experts",
     .experts_too = "num_local_experts",
     .own_keys = R"(["full_attention_interval", "mlp_only_layers", "partial_rotary_factor",
       "linear_num_key_heads", "linear_num_value_heads", "linear_key_head_dim", "linear_value_head_dim",
       "linear_conv_kernel_dim", "shared_expert_intermediate_size"])"},
    // Tandem's own: transformers has no such model.
    {.architecture = "TandemHybridForCausalLM",
     .model_type = "hybrid",
     .defaults = "{}",
     .own_keys =
         R"(["hybrid_pattern", "rotary_embedding", "partial_rotary_factor", "shared_expert_intermediate_size",
       "mamba_num_heads", "mamba_head_dim", "ssm_state_size", "n_groups", "conv_kernel", "chunk_size",
       "linear_num_key_heads", "linear_num_value_heads", "linear_key_head_dim", "linear_value_head_dim",
       "linear_conv_kernel_dim", "linear_chunk_size"])"},
};

}  // namespace

std::span<const HuggingFaceFamily> HuggingFaceFamilies() { return kFamilies; }

const HuggingFaceFamily* FamilyOf(const FamilyJson& config) {
  const FamilyJson architectures = config.value("architectures", FamilyJson());
  const FamilyJson type = config.value("model_type", FamilyJson());
  for (const HuggingFaceFamily& family : kFamilies) {
    const bool listed =
        architectures.is_array() && architectures.size() == 1 && architectures[0] == family.architecture;
    if (listed ? type.is_null() || type == family.model_type
               : architectures.is_null() && type == family.model_type) {
      return &family;
    }
  }
  return nullptr;
}

void AddDefaults(const HuggingFaceFamily& family, FamilyJson& config) {
  const FamilyJson defaults = FamilyJson::parse(family.defaults);
  for (const auto& [key, value] : defaults.items()) {
    if (!config.contains(key)) {
      config[key] = value;
    }
  }
}

}  // namespace tandem::jobspec
