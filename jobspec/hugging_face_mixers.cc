// SPDX-License-Identifier: Apache-2.0
#include "jobspec/hugging_face_mixers.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <optional>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "jobspec/hugging_face_fields.h"
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

// What qwen3_next says of its layers.
void AddIntervals(const v1::Model& resolved, nlohmann::ordered_json& config) {
  nlohmann::ordered_json types = nlohmann::ordered_json::array();
  nlohmann::ordered_json dense = nlohmann::ordered_json::array();
  for (const model::LogicalLayer& layer : model::LayersOf(*PatternOf(resolved))) {
    types.push_back(layer.symbols[0] == model::LayerSymbol::kAttention ? "full_attention"
                                                                       : "linear_attention");
    if (layer.symbols[1] == model::LayerSymbol::kMlp) {
      dense.push_back(layer.index);
    }
  }
  config["num_hidden_layers"] = resolved.num_hidden_layers();
  config["layer_types"] = types;
  config["decoder_sparse_step"] = 1;
  config["mlp_only_layers"] = dense;
  config["hidden_act"] = "silu";
  config["attention_bias"] = false;
}

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
  if (resolved.has_moe()) {
    WriteFields(kGraniteExpertKeys, resolved.moe(), config);
  } else {
    config["num_local_experts"] = 0;
    config["shared_intermediate_size"] = resolved.intermediate_size();
  }
  WriteFields(kMultiplierKeys, resolved, config);
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

KeyProblem ReadIntervals(const nlohmann::json& config, v1::Model& model) {
  if (model.has_hybrid_pattern()) {
    return {};
  }
  const auto of = [&](const char* key) { return config.value(key, MixerJson()); };
  for (const char* const key : {"num_hidden_layers", "full_attention_interval", "decoder_sparse_step"}) {
    const MixerJson number = of(key);
    if (!number.is_number_unsigned() || number == 0 || number.get<uint64_t>() > uint64_t{kMostModelLayers}) {
      return {absl::StrCat(key, " ", number.dump()), absl::StrCat("1 to ", kMostModelLayers)};
    }
  }
  const int64_t layers = of("num_hidden_layers").get<int64_t>();
  const MixerJson types = of("layer_types");
  const auto is_type = [](const MixerJson& type) {
    return type == "full_attention" || type == "linear_attention";
  };
  if (!types.is_null() && (!types.is_array() || static_cast<int64_t>(types.size()) != layers ||
                           !std::all_of(types.begin(), types.end(), is_type))) {
    return {absl::StrCat("layer_types ", types.dump()),
            "full_attention or linear_attention for each of num_hidden_layers"};
  }
  const MixerJson dense = of("mlp_only_layers");
  const auto is_layer = [&](const MixerJson& layer) {
    return layer.is_number_unsigned() && layer.get<uint64_t>() < static_cast<uint64_t>(layers);
  };
  if (!dense.is_null() && (!dense.is_array() || !std::all_of(dense.begin(), dense.end(), is_layer))) {
    return {absl::StrCat("mlp_only_layers ", dense.dump()),
            absl::StrCat("a list of layers from 0 to ", layers - 1)};
  }
  const bool has_experts = of("num_experts") != 0;
  const auto interval = of("full_attention_interval").get<int64_t>();
  const auto step = of("decoder_sparse_step").get<int64_t>();
  std::string pattern;
  for (int64_t layer = 0; layer < layers; ++layer) {
    const bool attends = types.is_null() ? (layer + 1) % interval == 0 : types[layer] == "full_attention";
    const bool is_sparse =
        has_experts && (layer + 1) % step == 0 && std::find(dense.begin(), dense.end(), layer) == dense.end();
    absl::StrAppend(&pattern, "[", attends ? "*" : "G", is_sparse ? "E" : "-", "]");
  }
  model.set_hybrid_pattern(pattern);
  return {};
}

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

void AddMixers(const v1::Model& resolved, nlohmann::ordered_json& config) {
  const bool alone = resolved.model_type() == "mamba2";
  const bool next = resolved.model_type() == "qwen3_next";
  const bool own = next || resolved.model_type() == "hybrid";
  const bool pairs = FindModelType(resolved.model_type())->pairs;
  WriteFields(kPatternedKeys, resolved, config);
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
  WriteFields(kAttentionKeys, resolved, config);
  WriteFields(kRotationKeys, resolved, config);
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
    WriteFields(kPatternedExpertKeys, resolved.moe(), config);
  }
  if (resolved.model_type() == "nemotron_h") {
    config["mlp_hidden_act"] = "relu2";
  }
  WriteFields(kDeltaNetKeys, resolved.gated_delta_net(), config);
  if (!next) {
    WriteFields({&kDeltaNetChunkKey, 1}, resolved.gated_delta_net(), config);
  }
  WriteFields(MixerKeysOf(resolved.model_type()), resolved.mamba(), config);
  const int64_t inner = resolved.mamba().num_heads() * resolved.mamba().head_dim();
  if (alone && inner % resolved.hidden_size() == 0) {
    config["expand"] = inner / resolved.hidden_size();
  } else if (alone) {
    config["expand"] = static_cast<double>(inner) / static_cast<double>(resolved.hidden_size());
  }
}

}  // namespace tandem::jobspec
