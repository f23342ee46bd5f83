// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "jobspec/check_files.h"
#include "tandem/v1/job.pb.h"

namespace tandem::worker {

// The folders below which jobs of this worker may read data, and write and read checkpoints.
struct PathRules {
  std::vector<std::string> read;   // --read-root; empty: anywhere
  std::vector<std::string> write;  // --write-root; empty: anywhere
};

// Resolves symbolic links in the rules. The error, for a path that is not a folder, is one line with the
// flag.
absl::StatusOr<PathRules> Canonical(const PathRules& rules);

// Returns the paths of a job that canonical rules forbid. A path counts as the place where it leads, so
// neither `..` nor a symbolic link gets out of a root, and neither a FIFO nor a device is a file. Blocks on
// the file system, and sees only its present state: the rules stop jobs that name what is not theirs; a user
// that can change a root's content while a job starts is stopped only by the rights of the user that ranks
// run as.
std::vector<v1::Violation> CheckPaths(const v1::JobSpec& resolved, const PathRules& rules,
                                      const jobspec::BeforePath& before);

}  // namespace tandem::worker
