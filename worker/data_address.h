// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace tandem::worker {

// The address of this machine from which it reaches `target`, the controller's address as gRPC takes it
// ("unix:/path", "host:port", "[::1]:50", "dns:host:port", "ipv4:1.2.3.4:50"): where other workers of the
// same controller are likely to reach this one. 127.0.0.1 for a unix socket, whose other end is on this
// machine. If the host is this machine's own name, which Debian's installer writes as 127.0.1.1: the address
// of the default route, or else the first one of an interface that is up, because other workers reach the
// controller by that name over the network. A numeric address. Asks the routing table (connect of a datagram
// socket) and sends nothing; blocks while a host name is resolved. InvalidArgument for a target of another
// form, Unavailable without a route.
absl::StatusOr<std::string> LocalAddressToward(const std::string& target);

// OK if ranks of this machine can listen on `address`, a numeric one or a name. Otherwise InvalidArgument,
// which says why. Binds a socket and closes it; blocks while a name is resolved.
absl::Status CheckDataAddress(const std::string& address);

}  // namespace tandem::worker
