// SPDX-License-Identifier: Apache-2.0
#include "jobspec/hugging_face_mixers.h"

#include <optional>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "jobspec/model_types.h"

namespace tandem::jobspec {
namespace {

using MixerJson = nlohmann::json;

// What nemotron_h calls its kinds of layers; older files have short names.
constexpr std::pair<std::string_view, char> kLayerNames[] = {
    {"linear_attention", 'M'}, {"mamba", 'M'}, {"full_attention", '*'},
    {"attention", '*'},        {"mlp", '-'},   {"moe", 'E'},
};

}  // namespace

std::string ReadMixerPattern(const MixerJson& config, v1::Model& model) {
  if (model.has_hybrid_pattern()) {
    return "";
  }
  for (const char* const key : {"hybrid_pattern", "hybrid_override_pattern"}) {
    if (const MixerJson text = config.value(key, MixerJson()); !text.is_null()) {
      if (!text.is_string()) {
        return absl::StrCat(key, " ", text.dump());
      }
      model.set_hybrid_pattern(text.get<std::string>());
      return "";
    }
  }
  const MixerJson list = config.value("layers_block_type", MixerJson());
  if (!list.is_array()) {
    return absl::StrCat("layers_block_type ", list.dump());
  }
  std::string pattern;
  for (const MixerJson& layer : list) {
    const size_t before = pattern.size();
    for (const auto& [name, letter] : kLayerNames) {
      if (layer == name) {
        pattern += letter;
      }
    }
    if (pattern.size() == before) {
      return absl::StrCat("a layer ", layer.dump());
    }
  }
  model.set_hybrid_pattern(pattern);
  return "";
}

std::vector<std::string> MixerProblems(const MixerJson& config) {
  std::vector<std::string> problems;
  const auto of = [&](const char* key) { return config.value(key, MixerJson()); };
  if (const MixerJson head_dim = of("attention_head_dim");
      !head_dim.is_null() && head_dim != of("head_dim")) {
    problems.push_back(
        absl::StrCat("attention_head_dim ", head_dim.dump(), " and head_dim ", of("head_dim").dump()));
  }
  const MixerJson expand = of("expand");
  if (of("model_type") == "mamba2" && expand.is_number() && of("hidden_size").is_number() &&
      of("num_heads").is_number() && of("head_dim").is_number() &&
      expand.get<double>() * of("hidden_size").get<double>() !=
          of("num_heads").get<double>() * of("head_dim").get<double>()) {
    problems.push_back(
        absl::StrCat("expand ", expand.dump(), " times hidden_size, and num_heads times head_dim"));
  }
  return problems;
}

void AddMixers(const v1::Model& resolved, nlohmann::ordered_json& config) {
  const bool alone = resolved.model_type() == "mamba2";
  const bool own = resolved.model_type() == "hybrid";
  config[own ? "rms_norm_eps" : "layer_norm_epsilon"] = resolved.rms_norm_eps();
  if (alone) {
    config["num_hidden_layers"] = resolved.num_hidden_layers();
    config["hidden_act"] = "silu";
  } else {
    config[own ? "hybrid_pattern" : "hybrid_override_pattern"] = resolved.hybrid_pattern();
  }
  if (resolved.has_num_attention_heads()) {
    config["num_attention_heads"] = resolved.num_attention_heads();
    config["num_key_value_heads"] = resolved.num_key_value_heads();
    config["head_dim"] = resolved.head_dim();
  }
  if (resolved.has_rope_theta()) {
    config["rope_theta"] = resolved.rope_theta();
  }
  if (resolved.has_partial_rotary_factor()) {
    config["partial_rotary_factor"] = resolved.partial_rotary_factor();
  }
  if (resolved.has_intermediate_size()) {
    config["intermediate_size"] = resolved.intermediate_size();
  }
  if (own && resolved.has_moe()) {
    config["num_experts"] = resolved.moe().num_experts();
    config["num_experts_per_tok"] = resolved.moe().num_experts_per_tok();
    config["moe_intermediate_size"] = resolved.moe().moe_intermediate_size();
    config["norm_topk_prob"] = resolved.moe().norm_topk_prob();
    config["shared_expert_intermediate_size"] = resolved.moe().shared_expert_intermediate_size();
  }
  if (resolved.model_type() == "nemotron_h") {
    config["mlp_hidden_act"] = "relu2";
  }
  if (resolved.has_gated_delta_net()) {
    const v1::GatedDeltaNet& delta = resolved.gated_delta_net();
    config["linear_num_key_heads"] = delta.num_key_heads();
    config["linear_num_value_heads"] = delta.num_value_heads();
    config["linear_key_head_dim"] = delta.key_head_dim();
    config["linear_value_head_dim"] = delta.value_head_dim();
    config["linear_conv_kernel_dim"] = delta.conv_kernel();
    config["linear_chunk_size"] = delta.chunk_size();
  }
  if (!resolved.has_mamba()) {
    return;
  }
  const v1::Mamba& mamba = resolved.mamba();
  config[alone ? "num_heads" : "mamba_num_heads"] = mamba.num_heads();
  config[alone ? "head_dim" : "mamba_head_dim"] = mamba.head_dim();
  config[alone ? "state_size" : "ssm_state_size"] = mamba.state_size();
  config["n_groups"] = mamba.n_groups();
  config["conv_kernel"] = mamba.conv_kernel();
  config["chunk_size"] = mamba.chunk_size();
  const int64_t inner = mamba.num_heads() * mamba.head_dim();
  if (alone && inner % resolved.hidden_size() == 0) {
    config["expand"] = inner / resolved.hidden_size();
  } else if (alone) {
    config["expand"] = static_cast<double>(inner) / static_cast<double>(resolved.hidden_size());
  }
}

}  // namespace tandem::jobspec
