// SPDX-License-Identifier: Apache-2.0
#include "jobspec/hugging_face_mixers.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "jobspec/hugging_face_intervals.h"
#include "jobspec/hugging_face_rope.h"
#include "jobspec/model_types.h"

namespace tandem::jobspec {
namespace {

using MixerJson = nlohmann::json;

// What nemotron_h calls its kinds of layers; older files have short names.
constexpr std::pair<std::string_view, char> kLayerNames[] = {
    {"linear_attention", 'M'}, {"mamba", 'M'}, {"full_attention", '*'},
    {"attention", '*'},        {"mlp", '-'},   {"moe", 'E'},
};

constexpr char kLetters[] = "a text of letters, or a list of kinds of layers";

// The names of the kinds with these letters.
std::string KindsText(std::string_view letters) {
  std::vector<std::string> names;
  for (const auto& [name, letter] : kLayerNames) {
    if (letters.find(letter) != letters.npos) {
      names.emplace_back(name);
    }
  }
  return absl::StrJoin(names, ", ");
}

}  // namespace

KeyProblem ReadMixerPattern(const MixerJson& config, v1::Model& model) {
  if (model.has_hybrid_pattern()) {
    return {};
  }
  for (const char* const key : {"hybrid_pattern", "hybrid_override_pattern"}) {
    if (const MixerJson text = config.value(key, MixerJson()); !text.is_null()) {
      if (!text.is_string()) {
        return {absl::StrCat(key, " ", text.dump()), kLetters};
      }
      model.set_hybrid_pattern(text.get<std::string>());
      return {};
    }
  }
  const MixerJson list = config.value("layers_block_type", MixerJson());
  if (!list.is_array()) {
    return {absl::StrCat("layers_block_type ", list.dump()), kLetters};
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
      return {absl::StrCat("a layer ", layer.dump()), KindsText("M*-E")};
    }
  }
  model.set_hybrid_pattern(pattern);
  return {};
}

namespace {

// Sets the first letters of the layers, all M before, by attn_layer_indices.
KeyProblem TakePlaces(const MixerJson& places, std::string& letters) {
  const bool listed = places.is_array() || places.is_null();
  const auto is_place = [&](const MixerJson& place) {
    return place.is_number_unsigned() && place.get<uint64_t>() < letters.size();
  };
  if (!listed || !std::all_of(places.begin(), places.end(), is_place)) {
    return {absl::StrCat("attn_layer_indices ", places.dump()),
            absl::StrCat("a list of layers from 0 to ", letters.size() - 1)};
  }
  for (const MixerJson& place : places) {
    letters[place.get<size_t>()] = '*';
  }
  return {};
}

// The same by the kinds of layers that `key` lists.
KeyProblem TakeKinds(const char* key, const MixerJson& kinds, std::string& letters) {
  if (kinds.is_null()) {
    return {};
  }
  if (!kinds.is_array() || kinds.size() != letters.size()) {
    return {absl::StrCat(key, " ", kinds.dump()),
            absl::StrCat("a kind for each of ", letters.size(), " layers")};
  }
  for (size_t i = 0; i < kinds.size(); ++i) {
    const auto* const found = std::find_if(std::begin(kLayerNames), std::end(kLayerNames),
                                           [&](const auto& row) { return kinds[i] == row.first; });
    if (found == std::end(kLayerNames) || (found->second != 'M' && found->second != '*')) {
      return {absl::StrCat("a layer ", kinds[i].dump()), KindsText("M*")};
    }
    letters[i] = found->second;
  }
  return {};
}

}  // namespace

KeyProblem ReadPairs(const MixerJson& config, bool by_places, v1::Model& model) {
  if (model.has_hybrid_pattern()) {
    return {};
  }
  const MixerJson layers = config.value("num_hidden_layers", MixerJson());
  if (!layers.is_number_unsigned() || layers.get<uint64_t>() < 1 ||
      layers.get<uint64_t>() > kMostModelLayers) {
    return {absl::StrCat("num_hidden_layers ", layers.dump()), absl::StrCat("1 to ", kMostModelLayers)};
  }
  std::string letters(layers.get<size_t>(), 'M');
  const char* const key = config.contains("layer_types") ? "layer_types" : "layers_block_type";
  const MixerJson kinds = config.value(key, MixerJson());
  KeyProblem problem = by_places ? TakePlaces(config.value("attn_layer_indices", MixerJson()), letters)
                                 : TakeKinds(key, kinds, letters);
  std::string again = letters;
  if (by_places && problem.value.empty()) {
    problem = TakeKinds(key, kinds, again);
  }
  if (problem.value.empty() && again != letters) {
    problem = {absl::StrCat(key, " ", kinds.dump()), "the same layers as attn_layer_indices"};
  }
  if (!problem.value.empty()) {
    return problem;
  }
  const MixerJson experts = config.value("num_local_experts", MixerJson());
  const char* const behind = experts.is_null() || experts == 0 ? "-]" : "E]";
  std::string pattern;
  for (const char letter : letters) {
    absl::StrAppend(&pattern, "[", std::string(1, letter), behind);
  }
  model.set_hybrid_pattern(pattern);
  return {};
}

MixerKeys MixerKeysOf(const std::string& model_type) {
  if (model_type == "mamba2") {
    return {"num_heads", "head_dim", "state_size", "n_groups", "conv_kernel", "chunk_size"};
  }
  if (FindModelType(model_type)->pairs) {
    return {"mamba_n_heads",  "mamba_d_head", "mamba_d_state",
            "mamba_n_groups", "mamba_d_conv", "mamba_chunk_size"};
  }
  return {"mamba_num_heads", "mamba_head_dim", "ssm_state_size", "n_groups", "conv_kernel", "chunk_size"};
}

KeyProblem ReplaceAutoHeadDim(MixerJson& config) {
  constexpr char kKey[] = "mamba_d_head";
  constexpr uint64_t kMost = 1 << 24;
  const auto of = [&](const char* key) { return config.value(key, MixerJson()); };
  if (of(kKey) != "auto") {
    return {};
  }
  for (const char* const key : {"mamba_expand", "hidden_size", "mamba_n_heads"}) {
    if (!of(key).is_number_unsigned() || of(key) == 0 || of(key).get<uint64_t>() > kMost) {
      return {absl::StrCat(key, " ", of(key).dump()),
              absl::StrCat("an integer from 1 to ", kMost, ", as ", kKey, " is \"auto\"")};
    }
  }
  config[kKey] = of("mamba_expand").get<int64_t>() * of("hidden_size").get<int64_t>() /
                 of("mamba_n_heads").get<int64_t>();
  return {};
}

std::vector<std::string> MixerProblems(const MixerJson& config) {
  std::vector<std::string> problems;
  const auto of = [&](const char* key) { return config.value(key, MixerJson()); };
  if (const MixerJson head_dim = of("attention_head_dim");
      !head_dim.is_null() && head_dim != of("head_dim")) {
    problems.push_back(
        absl::StrCat("attention_head_dim ", head_dim.dump(), " and head_dim ", of("head_dim").dump()));
  }
  const auto check_width = [&](const char* expand, const char* heads, const char* head_dim) {
    if (of(expand).is_number() && of("hidden_size").is_number() && of(heads).is_number() &&
        of(head_dim).is_number() &&
        of(expand).get<double>() * of("hidden_size").get<double>() !=
            of(heads).get<double>() * of(head_dim).get<double>()) {
      problems.push_back(absl::StrCat(expand, " ", of(expand).dump(), " times hidden_size, and ", heads,
                                      " times ", head_dim));
    }
  };
  if (of("model_type") == "mamba2") {
    check_width("expand", "num_heads", "head_dim");
  }
  check_width("mamba_expand", "mamba_n_heads", "mamba_d_head");
  return problems;
}

void AddMultipliers(const v1::Model& resolved, nlohmann::ordered_json& config) {
  if (!FindModelType(resolved.model_type())->has_multipliers) {
    return;
  }
  config["embedding_multiplier"] = resolved.embedding_multiplier();
  if (resolved.has_attention_multiplier()) {
    config["attention_multiplier"] = resolved.attention_multiplier();
  }
  config["residual_multiplier"] = resolved.residual_multiplier();
  config["logits_scaling"] = resolved.logits_scaling();
}

namespace {

// What granitemoehybrid and bamba say of their layers.
void AddPairs(const v1::Model& resolved, nlohmann::ordered_json& config) {
  const bool granite = resolved.model_type() == "granitemoehybrid";
  auto kinds = nlohmann::ordered_json::array();
  auto places = nlohmann::ordered_json::array();
  const std::optional<model::LayerPattern> pattern = PatternOf(resolved);
  for (const model::LogicalLayer& layer : model::LayersOf(pattern.value())) {
    const bool attends = layer.symbols.front() == model::LayerSymbol::kAttention;
    kinds.push_back(attends ? "attention" : "mamba");  // which transformers 4 reads too
    if (attends) {
      places.push_back(layer.index);
    }
  }
  config["num_hidden_layers"] = resolved.num_hidden_layers();
  config["hidden_act"] = "silu";
  if (resolved.has_mamba()) {
    config["mamba_expand"] =
        resolved.mamba().num_heads() * resolved.mamba().head_dim() / resolved.hidden_size();
  } else {  // transformers checks these sizes of mixers that are not there
    config["mamba_expand"] = 1;
    config["mamba_n_heads"] = 1;
    config["mamba_n_groups"] = 1;
    config["mamba_d_head"] = "auto";
  }
  if (!granite) {
    config["attn_layer_indices"] = places;
    return;
  }
  config["layer_types"] = kinds;
  config["position_embedding_type"] = resolved.rotary_embedding() ? "rope" : "nope";
  const v1::MixtureOfExperts& moe = resolved.moe();
  config["num_local_experts"] = moe.num_experts();  // 0: none
  if (resolved.has_moe()) {
    config["num_experts_per_tok"] = moe.num_experts_per_tok();
    config["intermediate_size"] = moe.moe_intermediate_size();
  }
  config["shared_intermediate_size"] =
      resolved.has_moe() ? moe.shared_expert_intermediate_size() : resolved.intermediate_size();
  AddMultipliers(resolved, config);
}

}  // namespace

void AddMixers(const v1::Model& resolved, nlohmann::ordered_json& config) {
  const bool alone = resolved.model_type() == "mamba2";
  const bool next = resolved.model_type() == "qwen3_next";
  const bool own = next || resolved.model_type() == "hybrid";
  const bool pairs = FindModelType(resolved.model_type())->pairs;
  config[own || pairs ? "rms_norm_eps" : "layer_norm_epsilon"] = resolved.rms_norm_eps();
  if (next) {
    AddIntervals(resolved, config);
  } else if (pairs) {
    AddPairs(resolved, config);
  } else if (alone) {
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
  if (resolved.has_rope_scaling()) {
    config["rope_scaling"] = RopeScalingJson(resolved.rope_scaling());
  }
  if (own && resolved.has_rotary_embedding()) {
    config["rotary_embedding"] = resolved.rotary_embedding();
  }
  if (resolved.has_intermediate_size() && !(pairs && resolved.has_moe())) {  // else it is that of experts
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
    if (!next) {
      config["linear_chunk_size"] = delta.chunk_size();
    }
  }
  if (!resolved.has_mamba()) {
    return;
  }
  const v1::Mamba& mamba = resolved.mamba();
  const MixerKeys keys = MixerKeysOf(resolved.model_type());
  config[keys.num_heads] = mamba.num_heads();
  config[keys.head_dim] = mamba.head_dim();
  config[keys.state_size] = mamba.state_size();
  config[keys.n_groups] = mamba.n_groups();
  config[keys.conv_kernel] = mamba.conv_kernel();
  config[keys.chunk_size] = mamba.chunk_size();
  const int64_t inner = mamba.num_heads() * mamba.head_dim();
  if (alone && inner % resolved.hidden_size() == 0) {
    config["expand"] = inner / resolved.hidden_size();
  } else if (alone) {
    config["expand"] = static_cast<double>(inner) / static_cast<double>(resolved.hidden_size());
  }
}

}  // namespace tandem::jobspec
