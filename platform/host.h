// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace tandem::platform {

// The name of this machine, as it calls itself; "localhost" where it has no name.
std::string HostName();

// True if `address`, "unix:/path" or "host:port", leads to this machine and no other machine reaches it.
bool IsLocalAddress(std::string_view address);

// Lets this process have as many file descriptors as the machine allows it; the log says where that fails.
void RaiseDescriptorLimit();

// How many it may have.
uint64_t DescriptorLimit();

}  // namespace tandem::platform
