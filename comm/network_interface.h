// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace tandem::comm {

// Returns the name ("eth0") of this machine's network interface that has `address`, a host name or an IP
// address; empty if no interface has it. Blocks while it resolves a host name.
std::string InterfaceOf(const std::string& address);

}  // namespace tandem::comm
