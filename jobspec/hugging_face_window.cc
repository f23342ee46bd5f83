// SPDX-License-Identifier: Apache-2.0
#include "jobspec/hugging_face_window.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "absl/strings/str_cat.h"
#include "jobspec/model_types.h"

namespace tandem::jobspec {
namespace {

using WindowJson = nlohmann::json;

class WindowReader {
 public:
  WindowReader(const WindowJson& config, WindowKeys keys, const RefuseKey& refuse)
      : config_(config), keys_(keys), refuse_(refuse) {}

  // What is wrong has been refused where it returns false. given_layers: of the job; 0: it does not say.
  bool Read(int64_t given_layers) {
    const bool switched = keys_ == WindowKeys::kSwitch || keys_ == WindowKeys::kLayers;
    const WindowJson use = Of("use_sliding_window");
    const WindowJson window = Of("sliding_window");
    if (!use.is_null() && !use.is_boolean()) {
      return Refuse("use_sliding_window", use, switched ? "true, false" : "false");
    }
    if (!switched && use == true) {
      return Refuse("use_sliding_window", use, "false");
    }
    if (keys_ == WindowKeys::kNone && !window.is_null()) {
      return Refuse("sliding_window", window, "null");
    }
    const bool has_window = keys_ != WindowKeys::kNone && !window.is_null() && (!switched || use == true);
    if (has_window && !(window.is_number_unsigned() && window.get<uint64_t>() >= 1)) {
      return Refuse("sliding_window", window, "an integer >= 1, or null");
    }
    const WindowJson layers = Of("num_hidden_layers");
    const bool usable = layers.is_number_unsigned() && layers.get<uint64_t>() <= kMostModelLayers;
    if (given_layers <= 0 && !usable) {
      return true;  // refused elsewhere
    }
    num_layers_ = given_layers > 0 ? std::min(given_layers, kMostModelLayers) : layers.get<int64_t>();
    const WindowJson types = Of("layer_types");
    int64_t first = has_window ? 0 : num_layers_;  // that has it, by the other keys
    if (has_window && keys_ == WindowKeys::kLayers) {
      const WindowJson most = Of("max_window_layers");
      if (!most.is_number_unsigned()) {
        return Refuse("max_window_layers", most, "an integer >= 0");
      }
      first = static_cast<int64_t>(std::min<uint64_t>(most.get<uint64_t>(), num_layers_));
    }
    window_ = has_window ? window : WindowJson();
    if (types.is_null()) {
      return Take([&](int64_t layer) { return layer >= first; });
    }
    return ReadTypes(types, usable ? layers.get<int64_t>() : num_layers_, has_window);
  }

  // Nothing if no layer has one.
  std::optional<int64_t> window() const {
    return with_.empty() ? std::nullopt : std::optional(window_.get<int64_t>());
  }
  bool in_all() const { return static_cast<int64_t>(with_.size()) == num_layers_; }
  std::string layers() const { return WindowLayersText(with_, num_layers_); }

 private:
  WindowJson Of(const char* key) const { return config_.value(key, WindowJson()); }

  bool Refuse(const char* key, const WindowJson& value, const char* allowed) {
    refuse_(absl::StrCat(key, " ", value.dump()), allowed, "mend the file, or use another model");
    return false;
  }

  template <typename HasWindow>
  bool Take(const HasWindow& has_window) {
    for (int64_t layer = 0; layer < num_layers_; ++layer) {
      if (has_window(layer)) {
        with_.push_back(layer);
      }
    }
    return true;
  }

  // Where there are both, transformers takes layer_types, and max_window_layers may say something else.
  // file_layers: what they must be of. A job of another number of layers takes none that differ.
  bool ReadTypes(const WindowJson& types, int64_t file_layers, bool has_window) {
    const auto is = [](const char* kind) { return [kind](const auto& type) { return type == kind; }; };
    const bool known = types.is_array() && std::all_of(types.begin(), types.end(), [&](const auto& type) {
                         return is("full_attention")(type) || is("sliding_attention")(type);
                       });
    if (!known || static_cast<int64_t>(types.size()) != file_layers) {
      return Refuse("layer_types", types,
                    "full_attention or sliding_attention for each of num_hidden_layers");
    }
    const bool has_any = std::any_of(types.begin(), types.end(), is("sliding_attention"));
    const bool has_all = std::all_of(types.begin(), types.end(), is("sliding_attention"));
    if (keys_ == WindowKeys::kLayers ? has_any && !has_window : has_any != has_window || has_any != has_all) {
      return Refuse("layer_types", types,
                    keys_ == WindowKeys::kSwitch || keys_ == WindowKeys::kLayers
                        ? "what use_sliding_window and sliding_window say of the layers"
                        : "what sliding_window says of the layers");
    }
    if (has_any && !has_all && num_layers_ != file_layers) {
      return Refuse("layer_types", types, "layers of one kind where the job gives num_hidden_layers");
    }
    return Take([&](int64_t layer) { return has_all || (has_any && is("sliding_attention")(types[layer])); });
  }

  const WindowJson& config_;
  const WindowKeys keys_;
  const RefuseKey& refuse_;
  WindowJson window_;
  int64_t num_layers_ = 0;
  std::vector<int64_t> with_;
};

}  // namespace

void ReadSlidingWindow(const nlohmann::json& config, WindowKeys keys, v1::Model& model,
                       const RefuseKey& refuse) {
  WindowReader reader(config, keys, refuse);
  if (!reader.Read(model.num_hidden_layers()) || !reader.window().has_value()) {
    return;
  }
  if (!model.has_sliding_window()) {
    model.set_sliding_window(*reader.window());
  }
  if (!model.has_window_layers() && !reader.in_all()) {
    model.set_window_layers(reader.layers());
  }
}

}  // namespace tandem::jobspec
