// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <set>
#include <string>
#include <string_view>

#include "jobspec/hugging_face_families.h"
#include "jobspec/hugging_face_window.h"

namespace tandem::jobspec {

// Which keys of a config.json change what a model computes, and with which values Tandem computes the same.

inline constexpr char kGroupLimited[] = "group_limited_greedy";  // a topk_method

// Refuses each key that is not known or has another value, but for those of sliding windows and rotations
// (hugging_face_window.h, hugging_face_rope.h), and those for which is_read holds, whose values have a place
// in a job. family: null where it is not known. Returns the keys that are refused by their values.
std::set<std::string> CheckKeys(const nlohmann::json& config, const HuggingFaceFamily* family,
                                bool (*is_read)(std::string_view key), const RefuseKey& refuse);

// Whether all projections of an attention have biases; not of a family whose have none, or always some.
bool HasBiases(const nlohmann::json& config, const HuggingFaceFamily& family);

}  // namespace tandem::jobspec
