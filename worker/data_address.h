// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace tandem::worker {

// Returns the numeric address from which this machine reaches `target`, the controller's address as gRPC
// accepts it ("unix:/path", "host:port", "[::1]:50", "dns:host:port", "ipv4:1.2.3.4:50"). Other workers of
// that controller are likely to reach this machine at that address. For a unix socket it is 127.0.0.1. If the
// host is this machine's own name, which often resolves to a loopback address (Debian: 127.0.1.1), it is the
// address of the default route, or else of the first interface that is up, because other workers use that
// name over the network.
//
// Asks the routing table by connecting a datagram socket, and sends nothing. Blocks while a host name is
// resolved. InvalidArgument if the target has another form, Unavailable without a route.
absl::StatusOr<std::string> LocalAddressToward(const std::string& target);

// Returns OK if ranks of this machine can listen at `address` (numeric, or a host name), otherwise
// InvalidArgument, which says why. Binds a socket and closes it. Blocks while a name is resolved.
absl::Status CheckDataAddress(const std::string& address);

}  // namespace tandem::worker
