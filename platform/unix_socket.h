// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace tandem::platform {

// Whether a process listens at the unix socket `path` now: one whose queue of connections is full does. False
// where there is no such socket, where nobody has it open any more, and where `path` is too long for one.
// Never waits.
bool IsListening(const std::string& path);

}  // namespace tandem::platform
