// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace tandem::platform {

// The regular files that `pattern` names: a file, a folder (every regular file below it), or a glob of files
// and folders (*, ?, [abc]). What exists under the literal name wins over the glob. Symbolic links to files
// are followed; those to folders only if the pattern itself or a match of the glob is one, so there are no
// cycles. Paths are absolute if the pattern is, without duplicates, sorted bytewise; never empty. Errors are
// one line without the pattern: NotFound, PermissionDenied, InvalidArgument.
//
// Hidden files and folders, and copies that editors keep, are skipped: names below a folder, or that a
// wildcard matches, that begin with '.' or end in '~', unless the pattern itself writes that. `num_skipped`,
// if given, is set to their number; what is below a folder that is skipped is not counted.
absl::StatusOr<std::vector<std::string>> ListFiles(const std::string& pattern,
                                                   int64_t* num_skipped = nullptr);

// Whether `pattern` has a character that means something to a glob.
bool HasGlobCharacters(std::string_view pattern);

}  // namespace tandem::platform
