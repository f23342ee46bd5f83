// SPDX-License-Identifier: Apache-2.0
#include "jobspec/presets.h"

#include <map>

#include "google/protobuf/text_format.h"
#include "platform/check.h"

namespace tandem::jobspec {
namespace {

struct Preset {
  const char* name;
  const char* fields;  // in protobuf's text format
};

constexpr Preset kPresets[] = {
    {"llama-3-8b", R"(
      model_type: "llama" hidden_size: 4096 intermediate_size: 14336 num_hidden_layers: 32
      num_attention_heads: 32 num_key_value_heads: 8 vocab_size: 128256 rms_norm_eps: 1e-5 rope_theta: 500000
      tie_word_embeddings: false max_position_embeddings: 8192)"},
    {"llama-tiny", R"(
      model_type: "llama" hidden_size: 128 intermediate_size: 352 num_hidden_layers: 4 num_attention_heads: 4
      vocab_size: 256 rms_norm_eps: 1e-5 rope_theta: 10000 tie_word_embeddings: false)"},
};

const std::map<std::string, v1::Model>& Presets() {
  static const std::map<std::string, v1::Model> presets = [] {
    std::map<std::string, v1::Model> out;
    for (const Preset& preset : kPresets) {
      TANDEM_CHECK(google::protobuf::TextFormat::ParseFromString(preset.fields, &out[preset.name]),
                   "a preset is a model");
    }
    return out;
  }();
  return presets;
}

}  // namespace

std::vector<std::string> PresetNames() {
  std::vector<std::string> names;
  for (const auto& [name, model] : Presets()) {
    names.push_back(name);
  }
  return names;
}

const v1::Model* FindPreset(const std::string& name) {
  const auto found = Presets().find(name);
  return found == Presets().end() ? nullptr : &found->second;
}

}  // namespace tandem::jobspec
