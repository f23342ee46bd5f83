#pragma once

#include <string>

namespace tandem::platform {

// Of this machine, as it calls itself; "localhost" where it has no name.
std::string HostName();

}  // namespace tandem::platform
