// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "model/layer_pattern.h"
#include "tandem/v1/job.pb.h"

namespace tandem::jobspec {

// What follows from model.model_type. A job that writes one of these fields must write this value, because no
// model of the type has another; biases are optional if may_have_bias.
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
  bool rotates = true;          // whether queries and keys are rotated
  bool may_not_rotate = false;  // whether a job may say that they are not (model.rotary_embedding)
  bool may_rotate_partly = false;    // whether a job may say which share of a head is rotated
  double partial_rotary_factor = 1;  // that share, if a job may not say it
  bool has_multipliers = false;      // whether it has Granite's factors
  bool may_share_expert = false;     // whether an MLP of its own width may stand beside the experts
  double least_step = 0;             // the shortest time step of a mixer
  bool mixed_pairs = false;          // whether each layer of its pattern is a group of G or *, and - or E
  bool attention_gate = false;       // whether a gate multiplies the output of attention
  bool norms_add_one = false;        // whether norms multiply by 1 + weight
  bool shared_expert_gate = false;   // whether the MLP beside the experts has a gate and is always there
};

// Returns null for an unknown name.
const ModelType* FindModelType(std::string_view name);

// Lists the types for which `is` is true: "mixtral, qwen3_moe, deepseek_v2 or deepseek_v3".
std::string ModelTypesThat(bool ModelType::*is, const std::string& last = ", ");

// The pattern of a resolved model; unset if it has none, or a wrong one.
std::optional<model::LayerPattern> PatternOf(const v1::Model& resolved);

// The number of layers of a resolved model, including those that predict further tokens; 0 if no field says
// it.
int64_t NumLayersOf(const v1::Model& resolved);

inline constexpr int64_t kMostModelLayers = 1024;

// Parses model.window_layers to layer numbers, ascending. The text is "all", or numbers and ranges joined by
// commas, such as "0-3,8". The error says what is wrong.
absl::StatusOr<std::vector<int64_t>> WindowLayersIn(const std::string& list, int64_t layers);

// The inverse: the text for layers in ascending order.
std::string WindowLayersText(const std::vector<int64_t>& window_layers, int64_t layers);

}  // namespace tandem::jobspec
