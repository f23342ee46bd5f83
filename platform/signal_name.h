// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace tandem::platform {

// "SIGKILL"; "signal 77" for a signal without a name.
std::string SignalName(int signal);

}  // namespace tandem::platform
