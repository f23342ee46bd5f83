// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace tandem::platform {

// Lists the regular files that `pattern` names: a file, a folder (every regular file below it), or a glob of
// files and folders (*, ?, [abc]). What exists under the literal name wins over the glob. Symbolic links to
// files are followed; those to folders only if the pattern itself or a match of the glob is one, so there are
// no cycles. The list is sorted bytewise, has no path twice and is never empty; its paths are absolute if the
// pattern is. Returns NotFound, PermissionDenied or InvalidArgument, with one line that does not repeat the
// pattern.
//
// Skips hidden files and folders (which begin with '.') and backups of editors (which end in '~') that lie
// below a folder or that a wildcard matches; not if the pattern itself spells the '.' or the '~'.
// `num_skipped`, if given, is set to their number; what is below a skipped folder is not counted.
absl::StatusOr<std::vector<std::string>> ListFiles(const std::string& pattern,
                                                   int64_t* num_skipped = nullptr);

// Whether `pattern` has a wildcard of globs.
bool HasGlobCharacters(std::string_view pattern);

}  // namespace tandem::platform
