// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <grpcpp/support/status.h>

#include <vector>

#include "absl/status/status.h"
#include "tandem/v1/job.pb.h"

namespace tandem::controller {

// Converts a status: same code, same message.
grpc::Status ToRpc(const absl::Status& status);

// Makes INVALID_ARGUMENT with the message that `tandem validate` prints, and google.rpc.BadRequest details
// with a field violation for each violation. Trailers may have 8 kB: if the violations need more, the status
// has the first ones and the number of the others.
grpc::Status InvalidSpec(const std::vector<v1::Violation>& violations);

}  // namespace tandem::controller
