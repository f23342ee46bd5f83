// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <span>

namespace tandem::jobspec {

// Which keys of a family's config.json determine the layers with a sliding window.
enum class WindowKeys : uint8_t {
  kNone,
  kAlways,  // all layers, if sliding_window is not null
  kSwitch,  // all layers, if use_sliding_window is also true
  kLayers,  // if use_sliding_window is true: those in layer_types, or those from max_window_layers on
};

// A family of Hugging Face's models that Tandem can compute.
struct HuggingFaceFamily {
  const char* architecture;  // its entry in `architectures`
  const char* model_type;
  // The values that transformers 5.23 uses for keys that are missing in config.json, as a JSON object with
  // the keys of transformers 4. A missing key without a default counts as null. A key that is null in the
  // file stays null.
  const char* defaults;
  // The key of the number of experts, and another key that files may have instead; null if there are no
  // experts.
  const char* experts = nullptr;
  const char* experts_too = nullptr;
  bool has_latent_attention = false;
  WindowKeys window = WindowKeys::kNone;
  // Keys of this family that other families do not have, or for which this family allows other values: a JSON
  // list.
  const char* own_keys = "[]";
  // Keys that must have these values in this family: a JSON object.
  const char* must_be = "{}";
};

std::span<const HuggingFaceFamily> HuggingFaceFamilies();

// The family of `config`, which must be an object; null if Tandem does not know it.
const HuggingFaceFamily* FamilyOf(const nlohmann::json& config);

// Adds the default values of keys that `config` does not have.
void AddDefaults(const HuggingFaceFamily& family, nlohmann::json& config);

}  // namespace tandem::jobspec
