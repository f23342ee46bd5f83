// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <set>
#include <string>

#include "jobspec/hugging_face_families.h"
#include "jobspec/hugging_face_window.h"

namespace tandem::jobspec {

// Decides which keys of a config.json change what a model computes, and for which values Tandem computes the
// same.

inline constexpr char kGroupLimited[] = "group_limited_greedy";  // a value of topk_method

// A key and its value, "num_hidden_layers 0", and what is allowed. Both are empty if nothing is wrong.
struct KeyProblem {
  std::string value;
  std::string allowed;
};

// Refuses each key that is unknown or has another value than allowed. Excluded are the keys of sliding
// windows and rotations (hugging_face_window.h, hugging_face_rope.h), and those whose values become fields of
// the job (hugging_face_fields.h). `family` is null if it is unknown. Returns the keys whose values are
// refused.
std::set<std::string> CheckKeys(const nlohmann::json& config, const HuggingFaceFamily* family,
                                const RefuseKey& refuse);

// Whether all projections of an attention have biases. False for families in which this is fixed.
bool HasBiases(const nlohmann::json& config, const HuggingFaceFamily& family);

}  // namespace tandem::jobspec
