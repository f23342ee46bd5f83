// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <grpcpp/support/server_interceptor.h>

#include <memory>

#include "controller/rpc/callers.h"

namespace tandem::controller {

// Writes the audit log: one line {who, from, method, job, result} of our log for every call that changes
// something or reads what is its owner's (MethodRule::audited), and for every call that was refused to who
// made it. Nothing of a request but the job that it names is in it. `callers` outlives the server. Register
// it last: it tells the status that leaves.
std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface> AuditCalls(const Callers& callers);

}  // namespace tandem::controller
