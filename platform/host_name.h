#pragma once

#include <string>

namespace tandem::platform {

// The name of this machine, as it calls itself; "localhost" where it has no name.
std::string HostName();

}  // namespace tandem::platform
