// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <set>
#include <string>

#include "jobspec/hugging_face_families.h"
#include "jobspec/hugging_face_window.h"

namespace tandem::jobspec {

// Checks the keys of a config.json that change what a model computes. Only for some of their values does
// Tandem compute the same as transformers.

inline constexpr char kGroupLimited[] = "group_limited_greedy";  // a value of topk_method

// A key and its wrong value ("num_hidden_layers 0"), and what is allowed. Both are empty if nothing is wrong.
struct KeyProblem {
  std::string value;
  std::string allowed;
};

// Refuses each key that is unknown, or whose value is not allowed. Skips the keys of sliding windows and
// rotations (hugging_face_window.h, hugging_face_rope.h), and the keys that become fields of the job
// (hugging_face_fields.h). `family` is null if it is unknown. Returns the keys that are refused.
std::set<std::string> CheckKeys(const nlohmann::json& config, const HuggingFaceFamily* family,
                                const RefuseKey& refuse);

// Whether attention_bias is true: all projections of attention layers have biases. False for families that do
// not have this key.
bool HasBiases(const nlohmann::json& config, const HuggingFaceFamily& family);

}  // namespace tandem::jobspec
