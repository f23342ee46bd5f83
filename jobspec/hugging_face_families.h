// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <span>

namespace tandem::jobspec {

// The keys that say which layers have a sliding window.
enum class WindowKeys : uint8_t {
  kNone,
  kAlways,  // all layers, if sliding_window is not null
  kSwitch,  // all layers, if use_sliding_window is also true
  kLayers,  // if use_sliding_window is true: those in layer_types, or those from max_window_layers on
};

// A family of Hugging Face's models that has the same layers as ours, under other names.
struct HuggingFaceFamily {
  const char* architecture;  // its entry in `architectures`
  const char* model_type;
  // The values that transformers 5.23 uses for keys missing in config.json (null in the file is something
  // else): JSON, in the spelling of published files. A key that is in neither is null.
  const char* defaults;
  // The key that has the number of experts, and another name for it; null if there are none.
  const char* experts = nullptr;
  const char* experts_too = nullptr;
  bool has_latent_attention = false;
  WindowKeys window = WindowKeys::kNone;
  // Keys that only this family has, or for which it allows values that other families may not have: JSON.
  const char* own_keys = "[]";
  // Keys that must have these values in this family: JSON.
  const char* must_be = "{}";
};

std::span<const HuggingFaceFamily> HuggingFaceFamilies();

// The family of `config`, an object; null if it is none of these.
const HuggingFaceFamily* FamilyOf(const nlohmann::json& config);

// Adds the default values of keys that `config` does not have.
void AddDefaults(const HuggingFaceFamily& family, nlohmann::json& config);

}  // namespace tandem::jobspec
