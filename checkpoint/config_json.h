// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

namespace tandem::checkpoint {

// ParseConfig, below, parses config.json of a Hugging Face model. All code that reads such a file uses it.

inline constexpr char kConfigName[] = "config.json";
inline constexpr int64_t kMostConfigBytes = int64_t{1} << 20;

// Json is nlohmann::json or nlohmann::ordered_json. The latter keeps the order of the keys, in time quadratic
// in the number of keys. Infinite numbers, which Python writes in a way that is not JSON, become what
// transformers 5 writes: {"__float__": "Infinity"}. Returns InvalidArgument if the text is not a JSON object.
template <typename Json>
absl::StatusOr<Json> ParseConfig(const std::string& text);

}  // namespace tandem::checkpoint
