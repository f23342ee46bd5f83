// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace tandem::platform {

// Lists the regular files that `pattern` names: a file, a folder (every regular file below it), or a glob of
// files and folders (*, ?, [abc]). If a file or folder has the pattern as its literal name, it is used and no
// wildcard counts. Symbolic links to files are followed. Symbolic links to folders are followed only if they
// match the pattern itself, not below a folder, so there are no cycles. The list is sorted bytewise, has no
// path twice and is never empty; its paths are absolute if the pattern is. Returns NotFound, PermissionDenied
// or InvalidArgument, with a message of one line that does not repeat the pattern.
//
// Skips hidden files and folders (which begin with '.') and backups of editors (which end in '~') if they are
// below a folder or match a wildcard. A name is kept if the pattern itself spells its '.' or '~'.
// `num_skipped`, if given, is set to the number of skipped names; a skipped folder counts as one.
absl::StatusOr<std::vector<std::string>> ListFiles(const std::string& pattern,
                                                   int64_t* num_skipped = nullptr);

// Whether `pattern` has a wildcard (*, ? or [).
bool HasGlobCharacters(std::string_view pattern);

}  // namespace tandem::platform
