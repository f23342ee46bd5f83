// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/status.h"
#include "checkpoint/owner.h"
#include "platform/files.h"

namespace tandem::checkpoint {

// Deletes a saved step on a user's request. `self` owns the directory meanwhile and renews the ownership, so
// that no job saves there however long the disk takes to verify; `pause` is that of TakeOwnership. Returns
// FailedPrecondition if a job owns the directory, or, unless even_last, if this step verifies and no other
// does. Returns Aborted if `self` has lost the directory. In these cases nothing is deleted.
absl::Status DeleteStep(platform::Files& files, const std::string& directory, int64_t step, const Owner& self,
                        bool even_last, const std::function<void()>& pause);

}  // namespace tandem::checkpoint
