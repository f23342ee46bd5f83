// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace tandem::comm {

// The network interface of this machine that has `address`, a host name or an IP address: "eth0". Empty if
// none has it. Blocks while it resolves a name.
std::string InterfaceOf(const std::string& address);

}  // namespace tandem::comm
