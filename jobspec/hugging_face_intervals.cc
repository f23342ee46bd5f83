// SPDX-License-Identifier: Apache-2.0
#include "jobspec/hugging_face_intervals.h"

#include <algorithm>
#include <cstdint>

#include "absl/strings/str_cat.h"
#include "jobspec/model_types.h"

namespace tandem::jobspec {
namespace {

using IntervalJson = nlohmann::json;

}  // namespace

KeyProblem ReadIntervals(const nlohmann::json& config, v1::Model& model) {
  if (model.has_hybrid_pattern()) {
    return {};
  }
  const auto of = [&](const char* key) { return config.value(key, IntervalJson()); };
  for (const char* const key : {"num_hidden_layers", "full_attention_interval", "decoder_sparse_step"}) {
    const IntervalJson number = of(key);
    if (!number.is_number_unsigned() || number == 0 || number.get<uint64_t>() > uint64_t{kMostModelLayers}) {
      return {absl::StrCat(key, " ", number.dump()), absl::StrCat("1 to ", kMostModelLayers)};
    }
  }
  const int64_t layers = of("num_hidden_layers").get<int64_t>();
  const IntervalJson types = of("layer_types");
  const auto is_type = [](const IntervalJson& type) {
    return type == "full_attention" || type == "linear_attention";
  };
  if (!types.is_null() && (!types.is_array() || static_cast<int64_t>(types.size()) != layers ||
                           !std::all_of(types.begin(), types.end(), is_type))) {
    return {absl::StrCat("layer_types ", types.dump()),
            "full_attention or linear_attention for each of num_hidden_layers"};
  }
  const IntervalJson dense = of("mlp_only_layers");
  const auto is_layer = [&](const IntervalJson& layer) {
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

}  // namespace tandem::jobspec
