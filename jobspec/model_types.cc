// SPDX-License-Identifier: Apache-2.0
#include "jobspec/model_types.h"

#include <algorithm>
#include <iterator>
#include <numeric>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace tandem::jobspec {
namespace {

constexpr ModelType kModelTypes[] = {
    {.name = "llama", .may_have_bias = true},
    {.name = "mistral", .may_have_window = true},
    {.name = "mixtral", .may_have_window = true, .has_experts = true},
    {.name = "qwen2", .attention_bias = v1::ATTENTION_BIAS_QKV, .may_have_window = true},
    {.name = "qwen3", .may_have_bias = true, .qk_norm = v1::QK_NORM_HEAD, .may_have_window = true},
    {.name = "qwen3_moe",
     .may_have_bias = true,
     .qk_norm = v1::QK_NORM_HEAD,
     .may_have_window = true,
     .has_experts = true},
    {.name = "olmo2", .may_have_bias = true, .qk_norm = v1::QK_NORM_WHOLE, .norms = v1::NORM_PLACE_AFTER},
    {.name = "deepseek_v2", .has_experts = true, .has_latent_attention = true},
    {.name = "deepseek_v3",
     .has_experts = true,
     .has_latent_attention = true,
     .score = v1::ROUTER_SCORE_SIGMOID},
    {.name = "granite", .has_multipliers = true},
    {.name = "hybrid",
     .letters = "MG*-E",
     .may_group = true,
     .has_depths = true,
     .may_not_rotate = true,
     .may_rotate_partly = true,
     .may_share_expert = true},
    {.name = "mamba2", .letters = "M", .rotates = false},
    {.name = "nemotron_h", .letters = "M*-", .rotates = false, .least_step = 0.001},
    {.name = "granitemoehybrid",
     .letters = "M*-E",
     .may_group = true,
     .pairs = true,
     .may_not_rotate = true,
     .has_multipliers = true,
     .may_share_expert = true},
    {.name = "bamba", .letters = "M*-", .may_group = true, .pairs = true, .partial_rotary_factor = 0.5},
    {.name = "qwen3_next",
     .qk_norm = v1::QK_NORM_HEAD,
     .letters = "G*-E",
     .may_group = true,
     .may_rotate_partly = true,
     .may_share_expert = true,
     .mixed_pairs = true,
     .attention_gate = true,
     .norms_add_one = true,
     .shared_expert_gate = true},
};

}  // namespace

const ModelType* FindModelType(std::string_view name) {
  const auto* const found = std::find_if(std::begin(kModelTypes), std::end(kModelTypes),
                                         [&](const ModelType& type) { return type.name == name; });
  return found == std::end(kModelTypes) ? nullptr : found;
}

std::string ModelTypesThat(const std::function<bool(const ModelType&)>& is, const std::string& last) {
  std::vector<std::string> names;
  for (const ModelType& type : kModelTypes) {
    if (is(type)) {
      names.emplace_back(type.name);
    }
  }
  std::string text = names.front();
  for (size_t i = 1; i < names.size(); ++i) {
    absl::StrAppend(&text, i + 1 == names.size() ? last : std::string(", "), names[i]);
  }
  return text;
}

std::optional<model::LayerPattern> PatternOf(const v1::Model& resolved) {
  const ModelType* const type = FindModelType(resolved.model_type());
  if (type == nullptr || type->letters == nullptr || !resolved.has_hybrid_pattern()) {
    return std::nullopt;
  }
  absl::StatusOr<model::LayerPattern> pattern = model::ParseLayerPattern(resolved.hybrid_pattern());
  return pattern.ok() ? std::optional(*std::move(pattern)) : std::nullopt;
}

int64_t NumLayersOf(const v1::Model& resolved) {
  const std::optional<model::LayerPattern> pattern = PatternOf(resolved);
  return pattern.has_value() ? model::NumUnits(*pattern) : resolved.num_hidden_layers();
}

absl::StatusOr<std::vector<int64_t>> WindowLayersIn(const std::string& list, int64_t layers) {
  std::vector<int64_t> found;
  if (list == "all") {
    found.resize(layers);
    std::iota(found.begin(), found.end(), 0);
    return found;
  }
  for (const std::string& range : std::vector<std::string>(absl::StrSplit(list, ','))) {
    const std::pair<std::string, std::string> ends = absl::StrSplit(range, absl::MaxSplits('-', 1));
    int64_t first = 0;
    int64_t last = 0;
    if (!absl::SimpleAtoi(ends.first, &first) ||
        !absl::SimpleAtoi(range.find('-') == range.npos ? ends.first : ends.second, &last) || first < 0 ||
        last < first) {
      return absl::InvalidArgumentError(
          absl::StrCat("\"", range, "\" is neither a layer nor a range of layers"));
    }
    if (last >= layers) {
      return absl::InvalidArgumentError(absl::StrCat("its layers are 0 to ", layers - 1));
    }
    if (!found.empty() && first <= found.back()) {
      return absl::InvalidArgumentError("list each layer once, in ascending order");
    }
    for (int64_t layer = first; layer <= last; ++layer) {
      found.push_back(layer);
    }
  }
  return found;
}

std::string WindowLayersText(const std::vector<int64_t>& window_layers, int64_t layers) {
  if (static_cast<int64_t>(window_layers.size()) == layers) {
    return "all";
  }
  std::string text;
  for (size_t i = 0; i < window_layers.size();) {
    size_t end = i + 1;
    while (end < window_layers.size() && window_layers[end] == window_layers[end - 1] + 1) {
      ++end;
    }
    absl::StrAppend(&text, text.empty() ? "" : ",", window_layers[i]);
    if (end - i > 1) {
      absl::StrAppend(&text, "-", window_layers[end - 1]);
    }
    i = end;
  }
  return text;
}

}  // namespace tandem::jobspec
