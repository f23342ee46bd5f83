// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace tandem::platform {

// Whether a process listens at the unix socket `path` now; true even if its queue of connections is full.
// False if there is no such socket, if no process has it open any more, or if `path` is too long. Unavailable
// if this user may not connect ("Permission denied") or this process has no descriptor left. Never waits.
absl::StatusOr<bool> IsListening(const std::string& path);

}  // namespace tandem::platform
