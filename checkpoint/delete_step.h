// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/status.h"
#include "checkpoint/owner.h"
#include "platform/files.h"

namespace tandem::checkpoint {

// Deletes a saved step for a user. `self` owns the directory meanwhile, and renews that, so that no job saves
// there however long the disk takes to verify; `pause` is that of TakeOwnership.
// FailedPrecondition where a job owns the directory, and, unless even_last, where no other step verifies but
// this one does. Aborted where `self` has lost the directory. Then nothing is deleted.
absl::Status DeleteStep(platform::Files& files, const std::string& directory, int64_t step, const Owner& self,
                        bool even_last, const std::function<void()>& pause);

}  // namespace tandem::checkpoint
