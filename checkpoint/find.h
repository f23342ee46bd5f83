#pragma once

#include <string>
#include <vector>

#include "platform/files.h"

namespace tandem::checkpoint {

// Paths of the folders `step-N` in `directory`, highest N first, whole or not.
// Empty where the directory is not there; CheckpointError where it cannot be read.
std::vector<std::string> NewestFirst(platform::Files& files, const std::string& directory);

// Reads the manifest and every file, and compares all digests. Throws CheckpointError.
void Verify(platform::Files& files, const std::string& path);

}  // namespace tandem::checkpoint
