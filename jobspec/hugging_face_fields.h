// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>

#include "google/protobuf/message.h"

namespace tandem::jobspec {

// Maps the fields of a job's model to the keys of a config.json. Both the reader and the writer of such files
// use these tables.

struct FieldKey {
  const char* field;
  const char* key = field;
  bool may_be_null = false;  // if the key is null, the field keeps its default
};
using FieldKeys = std::span<const FieldKey>;

// For models whose layers are all of one kind, or are sparse and dense.
inline constexpr FieldKey kSizeKeys[] = {{"hidden_size"},
                                         {"intermediate_size"},
                                         {"num_hidden_layers"},
                                         {"num_attention_heads"},
                                         {.field = "num_key_value_heads", .may_be_null = true}};
inline constexpr FieldKey kOtherKeys[] = {{"vocab_size"},        {"max_position_embeddings"},
                                          {"rms_norm_eps"},      {"rope_theta"},
                                          {"initializer_range"}, {"tie_word_embeddings"}};
inline constexpr FieldKey kLatentAttentionKeys[] = {{.field = "q_lora_rank", .may_be_null = true},
                                                    {"kv_lora_rank"},
                                                    {"qk_nope_head_dim"},
                                                    {"qk_rope_head_dim"},
                                                    {"v_head_dim"}};

// For models whose layers are listed by a pattern (model/layer_pattern.h).
inline constexpr FieldKey kPatternedKeys[] = {{"hidden_size"},
                                              {"vocab_size"},
                                              {.field = "max_position_embeddings", .may_be_null = true},
                                              {"initializer_range"},
                                              {"tie_word_embeddings"}};
inline constexpr FieldKey kAttentionKeys[] = {{"num_attention_heads"},
                                              {.field = "num_key_value_heads", .may_be_null = true},
                                              {.field = "head_dim", .may_be_null = true}};
inline constexpr FieldKey kRotationKeys[] = {{"rope_theta"}, {"partial_rotary_factor"}};
inline constexpr FieldKey kDeltaNetKeys[] = {{"num_key_heads", "linear_num_key_heads"},
                                             {"num_value_heads", "linear_num_value_heads"},
                                             {"key_head_dim", "linear_key_head_dim"},
                                             {"value_head_dim", "linear_value_head_dim"},
                                             {"conv_kernel", "linear_conv_kernel_dim"}};
// The chunk size changes how results are rounded, so Tandem writes it; other files do not have the key.
inline constexpr FieldKey kDeltaNetChunkKey = {"chunk_size", "linear_chunk_size", true};

// The keys that files of this model type have for the sizes of Mamba-2 mixers.
FieldKeys MixerKeysOf(std::string_view model_type);

// Granite's factors. The last is used only in models with attention layers.
inline constexpr FieldKey kMultiplierKeys[] = {
    {"embedding_multiplier"}, {"residual_multiplier"}, {"logits_scaling"}, {"attention_multiplier"}};

// The scaling of the rotary embedding, in the order of published files.
inline constexpr FieldKey kScalingKeys[] = {{"factor"},          {"original_max_position_embeddings"},
                                            {"low_freq_factor"}, {"high_freq_factor"},
                                            {"beta_fast"},       {"beta_slow"},
                                            {"truncate"},        {"mscale"},
                                            {"mscale_all_dim"},  {"attention_factor"}};

// Experts, except their number, whose key depends on the family (hugging_face_families.h).
inline constexpr FieldKey kExpertKeys[] = {{"moe_intermediate_size"}, {"norm_topk_prob"}};
inline constexpr FieldKey kSparseLayerKeys[] = {{"decoder_sparse_step"}};
inline constexpr FieldKey kDeepseekExpertKeys[] = {
    {"first_k_dense_replace"}, {"n_shared_experts"}, {"routed_scaling_factor"}};
inline constexpr FieldKey kGroupedExpertKeys[] = {{"n_group"}, {"topk_group"}};
inline constexpr FieldKey kGraniteExpertKeys[] = {
    {"num_experts_per_tok"},
    {"num_experts", "num_local_experts"},
    {"moe_intermediate_size", "intermediate_size"},
    {"shared_expert_intermediate_size", "shared_intermediate_size"}};
inline constexpr FieldKey kPatternedExpertKeys[] = {
    {"num_experts_per_tok"},
    {"num_experts"},
    {"moe_intermediate_size"},
    {"norm_topk_prob"},
    {.field = "shared_expert_intermediate_size", .may_be_null = true}};

// Whether `key` is in one of those tables whose keys set the same field in all families that have them.
bool IsFieldKey(std::string_view key);

// Sets a field that is a bool, an integer or a double. If the value does not fit, returns what would ("an
// integer"), otherwise an empty string.
std::string SetField(google::protobuf::Message& message, std::string_view field, const nlohmann::json& value);

// Writes to `config` those of `fields` that `message` has.
void WriteFields(FieldKeys fields, const google::protobuf::Message& message, nlohmann::ordered_json& config);

}  // namespace tandem::jobspec
