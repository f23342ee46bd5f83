// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "jobspec/check_files.h"
#include "tandem/v1/job.pb.h"

namespace tandem::worker {

// The folders below which jobs on this worker may read data (`read`), and read and write checkpoints
// (`write`).
struct PathRules {
  std::vector<std::string> read;   // --read-root; empty: anywhere
  std::vector<std::string> write;  // --write-root; empty: anywhere
};

// Returns the rules with symbolic links resolved. InvalidArgument if a path is not a folder: one line with
// its flag.
absl::StatusOr<PathRules> Canonical(const PathRules& rules);

// Returns a violation for each path of a job that the canonical `rules` forbid. Paths are resolved first, so
// neither `..` nor a symbolic link leads out of a root. Calls `before` before it inspects a path. Blocks on
// the file system.
//
// The rules see the present state of the file system only. They do not stop a user that can change a root's
// content while a job starts; the permissions of the user that ranks run as do.
std::vector<v1::Violation> CheckPaths(const v1::JobSpec& resolved, const PathRules& rules,
                                      const jobspec::BeforePath& before);

}  // namespace tandem::worker
