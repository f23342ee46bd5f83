// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <span>

namespace tandem::jobspec {

// What says which layers have a sliding window.
enum class WindowKeys : uint8_t {
  kNone,
  kAlways,  // all, where sliding_window is not null
  kSwitch,  // all, where use_sliding_window is true too
  kLayers,  // then those of layer_types, or those from max_window_layers on
};

// Hugging Face's models that have our layers, under our names of their parameters.
struct HuggingFaceFamily {
  const char* architecture;  // of `architectures`
  const char* model_type;
  // What transformers 5.23 takes where a config.json is silent (null in the file is another thing): JSON, in
  // the spelling of published files. A key that is in neither is null.
  const char* defaults;
  // What the file calls the number of experts, and what it may call it too; null: there are none.
  const char* experts = nullptr;
  const char* experts_too = nullptr;
  bool has_latent_attention = false;
  WindowKeys window = WindowKeys::kNone;
  // Layers by a pattern, whose keys hugging_face_mixers.h reads. Those beside them that it has: JSON.
  const char* mixer_keys = nullptr;
  // Keys of which this family has another only value than others, or has one at all: JSON.
  const char* must_be = "{}";
};

std::span<const HuggingFaceFamily> HuggingFaceFamilies();

// The one that `config`, an object, says it is of; null: none of these.
const HuggingFaceFamily* FamilyOf(const nlohmann::json& config);

// Adds what `config` is silent about.
void AddDefaults(const HuggingFaceFamily& family, nlohmann::json& config);

}  // namespace tandem::jobspec
