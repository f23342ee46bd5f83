// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

namespace tandem::checkpoint {

// The names of the files that jobs make in checkpoint.directory when they start.

// The file that names the job that owns the directory (owner.h).
inline constexpr char kOwnerName[] = ".owner";

// The prefix of a file that will be renamed to `.owner`.
inline constexpr char kNextOwnerPrefix[] = ".owner.";

// The prefix of a file that rank 0 writes. A rank that sees the file knows that it shares the folder with
// rank 0.
inline constexpr char kSameFolderPrefix[] = ".same-folder.";

// Whether the name has one of these two prefixes. A job removes the files that it made once it has started;
// if it is killed before, they remain.
inline bool IsOfAStart(std::string_view name) {
  return name.starts_with(kNextOwnerPrefix) || name.starts_with(kSameFolderPrefix);
}

// The folder of the files that belong to a job's first weights (source_files.h).
inline constexpr char kSourceName[] = "source";

// The name of the next `source` folder while it is written.
inline constexpr char kNextSourceName[] = "source.next";

// Whether a directory with only such names counts as empty. A start may leave them, and the next start
// replaces them.
inline bool CountsAsNothing(std::string_view name) {
  return IsOfAStart(name) || name == kSourceName || name == kNextSourceName;
}

}  // namespace tandem::checkpoint
