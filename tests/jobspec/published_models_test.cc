// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cstdint>
#include <ostream>
#include <string>

#include "jobspec/decoder_config.h"
#include "jobspec/jobspec.h"
#include "model/config.h"
#include "model/parameter_and_flop_counts.h"
#include "tests/jobspec/bad_spec.h"
#include "tests/platform/temporary_folder.h"

namespace tandem::jobspec {
namespace {

// A config.json of the hub, and the elements of its safetensors.
struct Published {
  const char* name;
  int64_t parameters;
  const char* config;
};

std::ostream& operator<<(std::ostream& out, const Published& model) { return out << model.name; }

constexpr Published kPublished[] = {
    {"Qwen2_5_0_5B", 494'032'768, R"({
       "architectures": ["Qwen2ForCausalLM"], "attention_dropout": 0.0, "bos_token_id": 151643,
       "eos_token_id": 151643, "hidden_act": "silu", "hidden_size": 896, "initializer_range": 0.02,
       "intermediate_size": 4864, "max_position_embeddings": 32768, "max_window_layers": 24,
       "model_type": "qwen2", "num_attention_heads": 14, "num_hidden_layers": 24, "num_key_value_heads": 2,
       "rms_norm_eps": 1e-06, "rope_theta": 1000000.0, "sliding_window": 32768, "tie_word_embeddings": true,
       "torch_dtype": "bfloat16", "transformers_version": "4.40.1", "use_cache": true, "use_mrope": false,
       "use_sliding_window": false, "vocab_size": 151936})"},
    {"Qwen3_0_6B", 596'049'920, R"({
       "architectures": ["Qwen3ForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
       "bos_token_id": 151643, "eos_token_id": 151645, "head_dim": 128, "hidden_act": "silu",
       "hidden_size": 1024, "initializer_range": 0.02, "intermediate_size": 3072,
       "max_position_embeddings": 40960, "max_window_layers": 28, "model_type": "qwen3",
       "num_attention_heads": 16, "num_hidden_layers": 28, "num_key_value_heads": 8, "rms_norm_eps": 1e-06,
       "rope_scaling": null, "rope_theta": 1000000, "sliding_window": null, "tie_word_embeddings": true,
       "torch_dtype": "bfloat16", "transformers_version": "4.51.0", "use_cache": true,
       "use_sliding_window": false, "vocab_size": 151936})"},
    {"Mistral_7B", 7'241'732'096, R"({
       "architectures": ["MistralForCausalLM"], "bos_token_id": 1, "eos_token_id": 2, "hidden_act": "silu",
       "hidden_size": 4096, "initializer_range": 0.02, "intermediate_size": 14336,
       "max_position_embeddings": 32768, "model_type": "mistral", "num_attention_heads": 32,
       "num_hidden_layers": 32, "num_key_value_heads": 8, "rms_norm_eps": 1e-05, "rope_theta": 10000.0,
       "sliding_window": 4096, "tie_word_embeddings": false, "torch_dtype": "bfloat16",
       "transformers_version": "4.34.0.dev0", "use_cache": true, "vocab_size": 32000})"},
    {"OLMo_2_1B", 1'484'916'736, R"({
       "architectures": ["Olmo2ForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
       "eos_token_id": 100257, "hidden_act": "silu", "hidden_size": 2048, "initializer_range": 0.02,
       "intermediate_size": 8192, "max_position_embeddings": 4096, "model_type": "olmo2",
       "num_attention_heads": 16, "num_hidden_layers": 16, "num_key_value_heads": 16, "pad_token_id": 100277,
       "rms_norm_eps": 1e-06, "rope_scaling": null, "rope_theta": 500000, "tie_word_embeddings": false,
       "torch_dtype": "float32", "transformers_version": "4.47.0", "use_cache": false, "vocab_size": 100352})"},
    {"DeepSeek_V2_Lite", 15'706'484'224, R"({
       "architectures": ["DeepseekV2ForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
       "auto_map": {"AutoConfig": "configuration_deepseek.DeepseekV2Config"}, "aux_loss_alpha": 0.001,
       "bos_token_id": 100000, "eos_token_id": 100001, "first_k_dense_replace": 1, "hidden_act": "silu",
       "hidden_size": 2048, "initializer_range": 0.02, "intermediate_size": 10944, "kv_lora_rank": 512,
       "max_position_embeddings": 163840, "model_type": "deepseek_v2", "moe_intermediate_size": 1408,
       "moe_layer_freq": 1, "n_group": 1, "n_routed_experts": 64, "n_shared_experts": 2,
       "norm_topk_prob": false, "num_attention_heads": 16, "num_experts_per_tok": 6, "num_hidden_layers": 27,
       "num_key_value_heads": 16, "pretraining_tp": 1, "q_lora_rank": null, "qk_nope_head_dim": 128,
       "qk_rope_head_dim": 64, "rms_norm_eps": 1e-06,
       "rope_scaling": {"beta_fast": 32, "beta_slow": 1, "factor": 40, "mscale": 0.707,
                        "mscale_all_dim": 0.707, "original_max_position_embeddings": 4096, "type": "yarn"},
       "rope_theta": 10000, "routed_scaling_factor": 1.0, "scoring_func": "softmax", "seq_aux": true,
       "tie_word_embeddings": false, "topk_group": 1, "topk_method": "greedy", "torch_dtype": "bfloat16",
       "transformers_version": "4.33.1", "use_cache": true, "v_head_dim": 128, "vocab_size": 102400})"},
    {"DeepSeek_V2", 235'741'434'880, R"({
       "architectures": ["DeepseekV2ForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
       "aux_loss_alpha": 0.001, "bos_token_id": 100000, "eos_token_id": 100001, "first_k_dense_replace": 1,
       "hidden_act": "silu", "hidden_size": 5120, "initializer_range": 0.02, "intermediate_size": 12288,
       "kv_lora_rank": 512, "max_position_embeddings": 163840, "model_type": "deepseek_v2",
       "moe_intermediate_size": 1536, "moe_layer_freq": 1, "n_group": 8, "n_routed_experts": 160,
       "n_shared_experts": 2, "norm_topk_prob": false, "num_attention_heads": 128, "num_experts_per_tok": 6,
       "num_hidden_layers": 60, "num_key_value_heads": 128, "pretraining_tp": 1, "q_lora_rank": 1536,
       "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "rms_norm_eps": 1e-06,
       "rope_scaling": {"beta_fast": 32, "beta_slow": 1, "factor": 40, "mscale": 1.0, "mscale_all_dim": 1.0,
                        "original_max_position_embeddings": 4096, "type": "yarn"},
       "rope_theta": 10000, "routed_scaling_factor": 16.0, "scoring_func": "softmax", "seq_aux": true,
       "tie_word_embeddings": false, "topk_group": 3, "topk_method": "group_limited_greedy",
       "torch_dtype": "bfloat16", "use_cache": true, "v_head_dim": 128, "vocab_size": 102400})"},
    {"Granite_4_H_Small", 32'207'337'984, R"({
       "architectures": ["GraniteMoeHybridForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
       "attention_multiplier": 0.0078125, "bos_token_id": 100257, "embedding_multiplier": 12,
       "eos_token_id": 100257, "hidden_act": "silu", "hidden_size": 4096, "init_method": "mup",
       "initializer_range": 0.1, "intermediate_size": 768, "layer_types": [
         "mamba", "mamba", "mamba", "mamba", "mamba", "attention", "mamba", "mamba", "mamba", "mamba",
         "mamba", "mamba", "mamba", "mamba", "mamba", "attention", "mamba", "mamba", "mamba", "mamba",
         "mamba", "mamba", "mamba", "mamba", "mamba", "attention", "mamba", "mamba", "mamba", "mamba",
         "mamba", "mamba", "mamba", "mamba", "mamba", "attention", "mamba", "mamba", "mamba", "mamba"],
       "logits_scaling": 16, "mamba_chunk_size": 256, "mamba_conv_bias": true, "mamba_d_conv": 4,
       "mamba_d_head": 64, "mamba_d_state": 128, "mamba_expand": 2, "mamba_n_groups": 1, "mamba_n_heads": 128,
       "mamba_proj_bias": false, "max_position_embeddings": 131072, "model_type": "granitemoehybrid",
       "normalization_function": "rmsnorm", "num_attention_heads": 32, "num_experts_per_tok": 10,
       "num_hidden_layers": 40, "num_key_value_heads": 8, "num_local_experts": 72,
       "output_router_logits": false, "pad_token_id": 100256, "position_embedding_type": "nope",
       "residual_multiplier": 0.22, "rms_norm_eps": 1e-05, "rope_scaling": null, "rope_theta": 10000,
       "router_aux_loss_coef": 0.0001, "shared_intermediate_size": 1536, "tie_word_embeddings": true,
       "torch_dtype": "bfloat16", "use_cache": true, "vocab_size": 100352})"},
    {"Bamba_9B", 9'780'235'392, R"({
       "architectures": ["BambaForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
       "attn_layer_indices": [9, 18, 27], "bos_token_id": 128000, "eos_token_id": 128001,
       "hidden_act": "silu", "hidden_size": 4096, "initializer_range": 0.02, "intermediate_size": 14336,
       "mamba_chunk_size": 256, "mamba_conv_bias": true, "mamba_d_conv": 4, "mamba_d_head": 64,
       "mamba_d_state": 128, "mamba_expand": 2, "mamba_n_groups": 1, "mamba_n_heads": 128,
       "mamba_proj_bias": false, "max_position_embeddings": 4096, "mlp_bias": false, "model_type": "bamba",
       "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 8, "num_logits_to_keep": 1,
       "pad_token_id": 0, "rms_norm_eps": 1e-05, "rope_theta": 10000.0, "tie_word_embeddings": false,
       "torch_dtype": "bfloat16", "use_cache": true, "vocab_size": 128256})"},
    {"Qwen3_Next_80B_A3B", 79'674'391'296, R"({
       "architectures": ["Qwen3NextForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
       "bos_token_id": 151643, "decoder_sparse_step": 1, "eos_token_id": 151645, "full_attention_interval": 4,
       "head_dim": 256, "hidden_act": "silu", "hidden_size": 2048, "initializer_range": 0.02,
       "intermediate_size": 5120, "linear_conv_kernel_dim": 4, "linear_key_head_dim": 128,
       "linear_num_key_heads": 16, "linear_num_value_heads": 32, "linear_value_head_dim": 128,
       "max_position_embeddings": 262144, "mlp_only_layers": [], "model_type": "qwen3_next",
       "moe_intermediate_size": 512, "norm_topk_prob": true, "num_attention_heads": 16, "num_experts": 512,
       "num_experts_per_tok": 10, "num_hidden_layers": 48, "num_key_value_heads": 2,
       "output_router_logits": false, "partial_rotary_factor": 0.25, "rms_norm_eps": 1e-06,
       "rope_scaling": null, "rope_theta": 10000000, "router_aux_loss_coef": 0.001,
       "shared_expert_intermediate_size": 512, "tie_word_embeddings": false, "torch_dtype": "bfloat16",
       "transformers_version": "4.57.0.dev0", "use_cache": true, "use_sliding_window": false,
       "vocab_size": 151936})"},
};

class PublishedModelTest : public testing::TestWithParam<Published> {};
INSTANTIATE_TEST_SUITE_P(All, PublishedModelTest, testing::ValuesIn(kPublished),
                         [](const auto& info) { return std::string(info.param.name); });

TEST_P(PublishedModelTest, IsTakenWithItsParameters) {
  const platform::TemporaryFolder folder;
  v1::JobSpec spec = ReadText(kGoodSpec, "").spec;
  spec.mutable_report()->set_parameter_norms(false);  // of so many experts
  spec.mutable_model()->Clear();
  spec.mutable_model()->set_hugging_face(folder.Write("config.json", GetParam().config));
  EXPECT_EQ(ToText(Localize(spec)), "");
  EXPECT_EQ(ToText(Validate(spec)), "");
  EXPECT_EQ(model::NumParameters(ModelConfigOf(Resolve(spec).model())), GetParam().parameters);
}

}  // namespace
}  // namespace tandem::jobspec
