// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <grpcpp/support/status.h>

#include <vector>

#include "absl/status/status.h"
#include "tandem/v1/job.pb.h"

namespace tandem::controller {

// The same code and text.
grpc::Status ToRpc(const absl::Status& status);

// INVALID_ARGUMENT with the text that `tandem validate` prints, and google.rpc.BadRequest details, a field
// violation each. Trailers are bounded (8 kB): of very many violations the first ones are given in full, and
// how many more there are.
grpc::Status InvalidSpec(const std::vector<v1::Violation>& violations);

}  // namespace tandem::controller
