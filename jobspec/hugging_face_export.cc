// SPDX-License-Identifier: Apache-2.0
#include "jobspec/hugging_face_export.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "checkpoint/config_json.h"
#include "data/dataset_json.h"
#include "jobspec/hugging_face_families.h"
#include "jobspec/hugging_face_fields.h"
#include "jobspec/hugging_face_keys.h"
#include "jobspec/hugging_face_mixers.h"
#include "jobspec/hugging_face_rope.h"
#include "jobspec/model_types.h"
#include "jobspec/start_weights.h"
#include "platform/status_macros.h"

namespace tandem::jobspec {
namespace {

using ConfigJson = nlohmann::ordered_json;

// Where a tensor comes: the embedding first, the final norm and the head behind the layers.
int64_t OrderOf(const std::string& name) {
  for (const std::string_view layers : {"model.layers.", "backbone.layers."}) {
    int64_t layer = 0;
    const size_t end = name.find('.', layers.size());
    if (name.starts_with(layers) &&
        absl::SimpleAtoi(name.substr(layers.size(), end - layers.size()), &layer)) {
      return layer;
    }
  }
  return name.starts_with("model.embed") || name.starts_with("backbone.embed") ? -1 : INT64_MAX;
}

void AddExperts(const v1::Model& model, const HuggingFaceFamily& family, ConfigJson& config) {
  const v1::MixtureOfExperts& moe = model.moe();
  config[family.experts] = moe.num_experts();
  config["num_experts_per_tok"] = moe.num_experts_per_tok();
  if (model.model_type() == "mixtral") {
    return;
  }
  WriteFields(kExpertKeys, moe, config);
  if (!family.has_latent_attention) {
    WriteFields(kSparseLayerKeys, moe, config);
    config["mlp_only_layers"] = ConfigJson::array();
    return;
  }
  WriteFields(kDeepseekExpertKeys, moe, config);
  WriteFields(kGroupedExpertKeys, moe, config);
  const bool greedy = moe.score() == v1::ROUTER_SCORE_SOFTMAX;
  config["scoring_func"] = greedy ? "softmax" : "sigmoid";
  config["topk_method"] = !greedy ? "noaux_tc" : moe.topk_group() < moe.n_group() ? kGroupLimited : "greedy";
  config["moe_layer_freq"] = 1;
  if (!greedy) {
    config["num_nextn_predict_layers"] = 0;  // else absent, and one in transformers
    config["rope_interleave"] = true;
  }
}

// In the keys that the family has: those of the others say nothing there.
absl::Status AddWindow(const v1::Model& model, WindowKeys keys, ConfigJson& config) {
  if (keys == WindowKeys::kNone) {
    return absl::OkStatus();
  }
  const bool has_window = model.has_sliding_window();
  config["sliding_window"] = has_window ? ConfigJson(model.sliding_window()) : ConfigJson();
  if (keys == WindowKeys::kAlways) {
    return absl::OkStatus();
  }
  config["use_sliding_window"] = has_window;
  if (keys == WindowKeys::kSwitch) {
    return absl::OkStatus();
  }
  const int64_t layers = model.num_hidden_layers();
  config["max_window_layers"] = layers;
  if (!has_window) {
    return absl::OkStatus();
  }
  TANDEM_ASSIGN_OR_RETURN(const std::vector<int64_t> with, WindowLayersIn(model.window_layers(), layers));
  config["max_window_layers"] = with.front();
  std::vector<std::string> types(layers, "full_attention");
  for (const int64_t layer : with) {
    types[layer] = "sliding_attention";
  }
  if (with.back() - with.front() + 1 != static_cast<int64_t>(with.size()) || with.back() != layers - 1) {
    config["layer_types"] = types;  // which older programs do not read; else the number says it
  }
  return absl::OkStatus();
}

// Keys of models whose layers are all of a kind, or sparse and dense.
absl::Status AddUsual(const v1::Model& resolved, const HuggingFaceFamily& family, ConfigJson& config) {
  WriteFields(kSizeKeys, resolved, config);
  WriteFields(kOtherKeys, resolved, config);
  WriteFields(kMultiplierKeys, resolved, config);
  if (resolved.has_latent_attention()) {
    config["q_lora_rank"] = nullptr;  // where there is none
    WriteFields(kLatentAttentionKeys, resolved.latent_attention(), config);
  } else {
    config["head_dim"] = resolved.head_dim();
  }
  config["hidden_act"] = "silu";
  config["rope_scaling"] =
      resolved.has_rope_scaling() ? RopeScalingJson(resolved.rope_scaling()) : ConfigJson();
  if (family.model_type != std::string_view("qwen2")) {  // its biases are always there
    config["attention_bias"] = resolved.attention_bias() == v1::ATTENTION_BIAS_ALL;
  }
  config["attention_dropout"] = 0.0;
  TANDEM_RETURN_IF_ERROR(AddWindow(resolved, family.window, config));
  if (resolved.model_type() == "llama") {
    config["mlp_bias"] = false;
  }
  if (resolved.has_moe()) {
    AddExperts(resolved, family, config);
  }
  return absl::OkStatus();
}

// Where a key is absent transformers takes an id of its own, which may be any token here; null says that
// there is none.
absl::Status AddTokenIds(const std::string& text, ConfigJson& config) {
  data::Dataset dataset;
  if (!text.empty()) {
    TANDEM_ASSIGN_OR_RETURN(dataset, data::ParseDataset(text));
  }
  for (const auto& [key, id] :
       {std::pair("bos_token_id", dataset.bos), std::pair("eos_token_id", dataset.eos),
        std::pair("pad_token_id", dataset.pad)}) {
    if (!config.contains(key)) {
      config[key] = id.has_value() ? ConfigJson(*id) : ConfigJson();
    }
  }
  return absl::OkStatus();
}

}  // namespace

std::vector<checkpoint::ExportedTensor> ExportedTensors(const model::DecoderConfig& config) {
  constexpr std::string_view kBias = ".e_score_correction_bias";  // transformers keeps it in fp32
  const checkpoint::WantedWeights wanted = WantedWeightsOf(config);
  std::vector<checkpoint::ExportedTensor> tensors;
  for (const std::vector<checkpoint::WantedTensor>& list : {wanted.tensors, wanted.zeros}) {
    for (const checkpoint::WantedTensor& tensor : list) {
      const bool is_bias = tensor.name.ends_with(kBias);
      tensors.push_back({.name = tensor.name,
                         .shape = tensor.shape,
                         .part_of = tensor.fused ? std::optional(tensor.instead.front()) : std::nullopt,
                         .keeps_fp32 = is_bias,
                         .may_be_zeros = is_bias});
    }
  }
  std::stable_sort(tensors.begin(), tensors.end(),
                   [](const auto& a, const auto& b) { return OrderOf(a.name) < OrderOf(b.name); });
  return tensors;
}

absl::StatusOr<std::string> ExportedConfig(const std::string& source, bool is_origin,
                                           const std::string& dataset, const v1::Model& resolved, bool bf16,
                                           int64_t trained_length) {
  ConfigJson config = ConfigJson::object();
  if (!source.empty()) {
    absl::StatusOr<ConfigJson> parsed = checkpoint::ParseConfig<ConfigJson>(source);
    if (!parsed.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat(checkpoint::kConfigName, ": ", parsed.status().message()));
    }
    config = *std::move(parsed);
    const ConfigJson type = config.value("model_type", ConfigJson());
    if (!is_origin || (!type.is_null() && type != resolved.model_type())) {
      config =
          ConfigJson::object();  // of another model, beside a tokenizer: its keys would mean other things
    }
    // The newer spellings of keys that are written below, what wrote the file, and what is true no longer.
    for (const char* const key :
         {"rope_parameters", "dtype", "layer_types", "transformers_version",
          "original_max_position_embeddings", "num_experts", "num_local_experts", "num_mtp_layers",
          "quantization_config", "auto_map", "sliding_window", "use_sliding_window", "max_window_layers",
          "attention_bias", "layers_block_type", "full_attention_interval", "time_step_limit"}) {
      config.erase(key);
    }
  }
  const bool has_own = !config.empty();  // what it does not say is as the weights' own file has it
  const HuggingFaceFamily* const family =
      FamilyOf(nlohmann::json::object({{"model_type", resolved.model_type()}}));
  if (family == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat("no family of models is ", resolved.model_type()));
  }
  config["architectures"] = ConfigJson::array({family->architecture});
  config["model_type"] = resolved.model_type();
  if (FindModelType(resolved.model_type())->letters != nullptr) {
    AddMixers(resolved, config);
  } else {
    TANDEM_RETURN_IF_ERROR(AddUsual(resolved, *family, config));
  }
  if (!config.contains("max_position_embeddings")) {
    config["max_position_embeddings"] = trained_length;
  }
  if (!dataset.empty() || !has_own) {
    TANDEM_RETURN_IF_ERROR(AddTokenIds(dataset, config));
  }
  config["torch_dtype"] = bf16 ? "bfloat16" : "float32";
  return config.dump(2, ' ', false, ConfigJson::error_handler_t::replace) + "\n";
}

}  // namespace tandem::jobspec
