// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <functional>

namespace tandem::data {

// How many files are in progress at once: what takes time is to wait for a file system.
inline constexpr size_t kMostConcurrentFiles = 8;

// Calls `work` for every index below `count`, on this thread and on others that end before it returns. Throws
// what the lowest index throws for which `work` does; then some above it have no call.
void ForEachFile(size_t count, const std::function<void(size_t index)>& work);

}  // namespace tandem::data
