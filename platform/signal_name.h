#pragma once

#include <string>

namespace tandem::platform {

// "SIGKILL"; "signal 77" where it has no name.
std::string SignalName(int signal);

}  // namespace tandem::platform
