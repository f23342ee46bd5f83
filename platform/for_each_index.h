// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <functional>

namespace tandem::platform {

// Calls `work` once for every index below `count`, on this thread and at most most_threads - 1 others, and
// returns when all calls have ended. Calls start in ascending order of their index. If the machine allows
// fewer threads, the work is done by fewer. If a call throws, each other thread starts at most one more, and
// the exception of the lowest index is rethrown. Requires most_threads >= 1.
void ForEachIndex(size_t count, int most_threads, const std::function<void(size_t index)>& work);

}  // namespace tandem::platform
