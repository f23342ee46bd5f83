// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace tandem::platform {

// The name of this machine; "localhost" if it has none.
std::string HostName();

// True if `address`, "unix:/path" or "host:port", leads to this machine and no other machine reaches it.
bool IsLocalAddress(std::string_view address);

// Raises the limit of file descriptors of this process as far as the machine allows. Logs a failure.
void RaiseDescriptorLimit();

// How many descriptors this process may have.
uint64_t DescriptorLimit();

}  // namespace tandem::platform
