// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

namespace tandem::checkpoint {

// The files that jobs make in checkpoint.directory as they start.

// Names the job that saves there (owner.h).
inline constexpr char kOwnerName[] = ".owner";

// What begins the name of what is to become that file.
inline constexpr char kNextOwnerPrefix[] = ".owner.";

// What begins the name of the token by which the ranks see that it is the same folder on all of their
// machines.
inline constexpr char kSameFolderPrefix[] = ".same-folder.";

// Whether the name is of the last two kinds. A start removes its own, and one that is killed leaves them.
inline bool IsOfAStart(std::string_view name) {
  return name.starts_with(kNextOwnerPrefix) || name.starts_with(kSameFolderPrefix);
}

// The folder of what goes with a job's first weights (source_files.h).
inline constexpr char kSourceName[] = "source";

// The next one, until it is whole.
inline constexpr char kNextSourceName[] = "source.next";

// Whether a folder that holds nothing but such names counts as empty: what starts leave there. The next start
// replaces it.
inline bool CountsAsNothing(std::string_view name) {
  return IsOfAStart(name) || name == kSourceName || name == kNextSourceName;
}

}  // namespace tandem::checkpoint
