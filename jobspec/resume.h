// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

namespace tandem::jobspec {

// checkpoint.resume is one of these words, or the path of one checkpoint.

// Starts from the newest checkpoint in checkpoint.directory, or from step 0 if there is none.
inline constexpr std::string_view kResumeNewest = "newest";

// Starts from step 0, whatever checkpoint.directory holds.
inline constexpr std::string_view kResumeNone = "none";

inline bool IsResumePath(std::string_view resume) {
  return !resume.empty() && resume != kResumeNewest && resume != kResumeNone;
}

}  // namespace tandem::jobspec
