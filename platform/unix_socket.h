// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace tandem::platform {

// Whether a process listens at the unix socket `path` now: one whose queue of connections is full does. False
// where there is no such socket, where nobody has it open any more, and where `path` is too long for one.
// Unavailable where that cannot be told: this user may not connect to it, or has no descriptor left; the
// error is "Permission denied". Never waits.
absl::StatusOr<bool> IsListening(const std::string& path);

}  // namespace tandem::platform
