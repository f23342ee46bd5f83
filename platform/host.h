// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace tandem::platform {

// The name of this machine; "localhost" if it has none.
std::string HostName();

// True if only this machine can connect to `address` ("unix:/path" or "host:port").
bool IsLocalAddress(std::string_view address);

// Raises this process's limit of file descriptors as far as the machine allows. Logs a failure.
void RaiseDescriptorLimit();

// How many descriptors this process may have.
uint64_t DescriptorLimit();

}  // namespace tandem::platform
