// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <set>
#include <string>

#include "absl/status/statusor.h"
#include "platform/files.h"

namespace tandem::checkpoint {

// The steps of a directory whose checkpoints are known to be whole, so that nobody reads them again to decide
// which to remove: those that this process has written or verified, and those that were there when it
// started, under a name that a checkpoint gets only when every file of it is written and that is taken from
// one that is found damaged, with their manifest and files of the size that it says.
//
// Of a job's rank 0, from when the job starts until it ends. A step that is not in it is of a damaged
// checkpoint, or somebody else has put it there since: it never takes the place of one that is.
using WholeSteps = std::set<int64_t>;

// What is there when the job starts. Reads manifests and sizes, and the content of no other file. One that
// cannot be read now is not among them.
absl::StatusOr<WholeSteps> FindWholeSteps(platform::Files& files, const std::string& directory);

}  // namespace tandem::checkpoint
