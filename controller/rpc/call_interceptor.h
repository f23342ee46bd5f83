// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <grpcpp/support/server_interceptor.h>

#include <memory>

#include "controller/metrics/metrics.h"
#include "controller/rpc/audit.h"
#include "controller/rpc/callers.h"
#include "controller/rpc/open_calls.h"
#include "controller/rpc/open_connections.h"
#include "platform/clock.h"

namespace tandem::controller {

// What calls are counted and recorded in; all outlive the server.
struct CallRecords {
  const Callers& callers;
  OpenCalls& open_calls;
  OpenConnections& connections;
  Metrics& metrics;
  AuditLog& audit;
  const platform::Clock& clock;
};

// Intercepts every call of a server:
//
// * It is counted in `open_calls`, from before its handler is asked until it is done. Calls of gRPC's own
//   services (reflection, health), whose handlers know neither limits nor revoked certificates, are cancelled
//   if Access::Admit would refuse them.
// * A request that is not the message that its method takes (cut off, of another type, invalid UTF-8) is
//   answered with INVALID_ARGUMENT and the type's name; gRPC 1.51 would answer UNIMPLEMENTED, without a word,
//   as if the method did not exist. In a stream of requests gRPC does not distinguish a malformed one from
//   the end.
// * It is counted in `metrics` as it begins and as it ends, and timed.
// * The audit log has a line for it if it changes something or reads what only its owner may
//   (MethodRule::audited), or is refused. Of the request, a line has only the job's name; of a submitted text
//   only if the job is taken.
std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface> InterceptCalls(
    const CallRecords& records);

}  // namespace tandem::controller
