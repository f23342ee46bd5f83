// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "model/layer_pattern.h"
#include "tandem/v1/job.pb.h"

namespace tandem::jobspec {

// What a model.model_type fixes, and what a job may choose with it (may_...). If a job writes a field that is
// fixed, it must write the fixed value.
struct ModelType {
  const char* name;
  v1::AttentionBias attention_bias = v1::ATTENTION_BIAS_NONE;
  bool may_have_bias = false;  // whether all projections may have one
  v1::QkNorm qk_norm = v1::QK_NORM_NONE;
  v1::NormPlace norms = v1::NORM_PLACE_BEFORE;
  bool may_have_window = false;
  bool has_experts = false;
  bool has_latent_attention = false;
  v1::RouterScore score = v1::ROUTER_SCORE_SOFTMAX;  // if the type has experts
  // The letters of its layers, if a pattern lists them (model/layer_pattern.h); otherwise null.
  const char* letters = nullptr;
  bool may_group = false;       // whether its pattern may have groups
  bool has_depths = false;      // whether its pattern may have depths of multi-token prediction
  bool pairs = false;           // whether its layers are groups of M or *, and then - or E, the same in all
  bool rotates = true;          // whether queries and keys are rotated, unless the job says otherwise
  bool may_not_rotate = false;  // whether a job may say that they are not (model.rotary_embedding)
  bool may_rotate_partly = false;    // whether a job may set the rotated share of a head
  double partial_rotary_factor = 1;  // the rotated share of a head, unless the job sets it
  bool has_multipliers = false;      // whether it has Granite's factors
  bool may_share_expert = false;     // whether there may be an MLP of another width beside the experts
  double least_step = 0;             // the shortest time step of a mixer
  bool mixed_pairs = false;          // whether each layer of its pattern is a group of G or *, and - or E
  bool attention_gate = false;       // whether a gate multiplies the output of attention
  bool norms_add_one = false;        // whether norms multiply by 1 + weight
  bool shared_expert_gate = false;   // whether the MLP beside the experts has a gate and is always there

  // Whether a layer of its pattern may have the letter.
  bool MayHave(char letter) const {
    return letters != nullptr && std::string_view(letters).find(letter) != std::string_view::npos;
  }
};

// Returns null for an unknown name.
const ModelType* FindModelType(std::string_view name);

// Lists the names of the types for which `is` returns true, with `last` between the last two: "mixtral,
// qwen3_moe or deepseek_v3".
std::string ModelTypesThat(const std::function<bool(const ModelType&)>& is, const std::string& last = ", ");

// The pattern of a resolved model; unset if it has none, or an invalid one.
std::optional<model::LayerPattern> PatternOf(const v1::Model& resolved);

// The number of layers of a resolved model, depths of multi-token prediction included; 0 if it is not given.
int64_t NumLayersOf(const v1::Model& resolved);

inline constexpr int64_t kMostModelLayers = 1024;

// Parses model.window_layers to layer numbers, ascending. The text is "all", or numbers and ranges in
// ascending order, joined by commas, such as "0-3,8". The error says what is wrong.
absl::StatusOr<std::vector<int64_t>> WindowLayersIn(const std::string& list, int64_t layers);

// Writes layers, in ascending order, as WindowLayersIn reads them.
std::string WindowLayersText(const std::vector<int64_t>& window_layers, int64_t layers);

}  // namespace tandem::jobspec
