// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <grpcpp/support/server_interceptor.h>

#include <memory>

#include "controller/rpc/callers.h"
#include "platform/clock.h"

namespace tandem::controller {

// Writes the audit log: one line {who, from, method, job, result} of our log for every call that changes
// something or reads what is its owner's (MethodRule::audited), and for every call that was refused to who
// made it, of one caller no more than these: a line says how many were left out before it, so
// that nobody fills the disk with refusals. Nothing of a request but the job that it names is in it.
// `callers` and `clock` outlive the server. Register it last: it records the status that leaves.
inline constexpr double kRefusalsPerSecond = 1;
inline constexpr double kRefusalsAtOnce = 100;
std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface> AuditCalls(
    const Callers& callers, const platform::Clock& clock);

}  // namespace tandem::controller
