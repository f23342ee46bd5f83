// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

namespace tandem::checkpoint {

// config.json of a Hugging Face model as JSON: all that read one read it so.

inline constexpr char kConfigName[] = "config.json";
inline constexpr int64_t kMostConfigBytes = int64_t{1} << 20;

// Json: nlohmann::json, or nlohmann::ordered_json, which keeps the order of the keys and takes a time that
// grows with the square of their number. Python writes infinite numbers as no JSON has them; here they are
// as transformers 5 writes them: {"__float__": "Infinity"}. InvalidArgument where the text is no JSON object.
template <typename Json>
absl::StatusOr<Json> ParseConfig(const std::string& text);

}  // namespace tandem::checkpoint
