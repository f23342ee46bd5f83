// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace tandem::platform {

// "SIGKILL"; "signal 77" if it has no name.
std::string SignalName(int signal);

}  // namespace tandem::platform
