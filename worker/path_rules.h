// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "jobspec/check_files.h"
#include "tandem/v1/job.pb.h"

namespace tandem::worker {

// Below which folders the jobs of this worker may read data, and write checkpoints (and read them again).
struct PathRules {
  std::vector<std::string> read;   // --read-root; empty: anywhere
  std::vector<std::string> write;  // --write-root; empty: anywhere
};

// The same folders as the file system has them, without symbolic links. One line with the flag where one is
// not a folder.
absl::StatusOr<PathRules> Canonical(const PathRules& rules);

// What a job may not use, by canonical rules: a path counts where it leads, so neither `..` nor a symbolic
// link gets out of a root, and neither a FIFO nor a device is a file. Blocks on the file system. It is what
// is there now: the rules hold against jobs that name what is not theirs; against who can change a root's
// content while a job starts, it is the user that ranks run as who holds.
std::vector<v1::Violation> CheckPaths(const v1::JobSpec& resolved, const PathRules& rules,
                                      const jobspec::BeforePath& before);

}  // namespace tandem::worker
