// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

namespace tandem::checkpoint {

// The names of the files that jobs make in checkpoint.directory when they start.

// The file that names the job which saves there (owner.h).
inline constexpr char kOwnerName[] = ".owner";

// The prefix of a file that will become the next such file.
inline constexpr char kNextOwnerPrefix[] = ".owner.";

// The prefix of a file with which the ranks check that they all see the same folder.
inline constexpr char kSameFolderPrefix[] = ".same-folder.";

// Whether the name has one of these two prefixes. A start removes its own such files; a killed start leaves
// them.
inline bool IsOfAStart(std::string_view name) {
  return name.starts_with(kNextOwnerPrefix) || name.starts_with(kSameFolderPrefix);
}

// The folder of the files that belong to a job's first weights (source_files.h).
inline constexpr char kSourceName[] = "source";

// The next such folder, until it is complete.
inline constexpr char kNextSourceName[] = "source.next";

// Whether a folder that contains only such names counts as empty. They are left by starts, and the next start
// replaces them.
inline bool CountsAsNothing(std::string_view name) {
  return IsOfAStart(name) || name == kSourceName || name == kNextSourceName;
}

}  // namespace tandem::checkpoint
