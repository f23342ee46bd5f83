// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <functional>

namespace tandem::platform {

// Calls `work` once for every index below `count`, on this thread and on at most most_threads - 1 others,
// which end before it returns. Indices begin in ascending order. If the machine allows fewer threads, it goes
// on with those that there are. Throws what the lowest index throws for which `work` does; then some above it
// have no call. Requires most_threads >= 1.
void ForEachIndex(size_t count, int most_threads, const std::function<void(size_t index)>& work);

}  // namespace tandem::platform
