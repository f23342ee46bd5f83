#pragma once

#include <string>

#include "absl/status/status.h"
#include "platform/files.h"

namespace tandem::checkpoint {

// `.owner` in a checkpoint directory: the id of the job that started there last. Two jobs in one directory
// would take each other's temporary folders for leftovers, so only the owner saves.

// Rank 0, before the first step. Whoever owned the directory cannot save there any more.
absl::Status TakeOwnership(platform::Files& files, const std::string& directory, const std::string& job);

// FailedPrecondition, naming the other job. Nobody owns a directory that has no such file.
absl::Status CheckOwner(platform::Files& files, const std::string& directory, const std::string& job);

}  // namespace tandem::checkpoint
