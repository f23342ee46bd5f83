// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <string_view>

namespace tandem::proto {

// The allowed ids of workers, described for error messages.
inline constexpr char kWorkerIds[] = "1 to 253 letters, digits, '-', '_' and '.'";

inline bool IsWorkerId(std::string_view id) {
  return !id.empty() && id.size() <= 253 && std::all_of(id.begin(), id.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '_' || c == '.';
  });
}

}  // namespace tandem::proto
