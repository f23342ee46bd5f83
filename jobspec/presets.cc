// SPDX-License-Identifier: Apache-2.0
#include "jobspec/presets.h"

#include <cstdint>

namespace tandem::jobspec {
namespace {

struct Preset {
  const char* name;
  int64_t hidden_size;
  int64_t intermediate_size;
  int64_t num_hidden_layers;
  int64_t num_attention_heads;
  int64_t num_key_value_heads;  // 0: as many as heads
  int64_t vocab_size;
  double rms_norm_eps;
  double rope_theta;
  bool tie_word_embeddings;
  int64_t max_position_embeddings;  // 0: no limit is known
};

constexpr Preset kPresets[] = {
    {"llama-3-8b", 4096, 14336, 32, 32, 8, 128256, 1e-5, 500000, false, 8192},
    {"llama-tiny", 128, 352, 4, 4, 0, 256, 1e-5, 10000, false, 0},
};

v1::Model ToModel(const Preset& preset) {
  v1::Model model;
  model.set_model_type("llama");
  model.set_hidden_size(preset.hidden_size);
  model.set_intermediate_size(preset.intermediate_size);
  model.set_num_hidden_layers(preset.num_hidden_layers);
  model.set_num_attention_heads(preset.num_attention_heads);
  if (preset.num_key_value_heads > 0) {
    model.set_num_key_value_heads(preset.num_key_value_heads);
  }
  model.set_vocab_size(preset.vocab_size);
  model.set_rms_norm_eps(preset.rms_norm_eps);
  model.set_rope_theta(preset.rope_theta);
  model.set_tie_word_embeddings(preset.tie_word_embeddings);
  if (preset.max_position_embeddings > 0) {
    model.set_max_position_embeddings(preset.max_position_embeddings);
  }
  return model;
}

}  // namespace

const std::vector<std::string>& PresetNames() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> result;
    for (const Preset& preset : kPresets) {
      result.push_back(preset.name);
    }
    return result;
  }();
  return names;
}

const v1::Model* FindPreset(const std::string& name) {
  static const std::vector<v1::Model> models = [] {
    std::vector<v1::Model> result;
    for (const Preset& preset : kPresets) {
      result.push_back(ToModel(preset));
    }
    return result;
  }();
  for (size_t i = 0; i < models.size(); ++i) {
    if (name == kPresets[i].name) {
      return &models[i];
    }
  }
  return nullptr;
}

}  // namespace tandem::jobspec
