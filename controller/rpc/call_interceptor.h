// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <grpcpp/support/server_interceptor.h>

#include <memory>

#include "controller/metrics/metrics.h"
#include "controller/rpc/audit.h"
#include "controller/rpc/call_limits.h"
#include "controller/rpc/callers.h"
#include "controller/rpc/open_connections.h"
#include "platform/clock.h"

namespace tandem::controller {

// The objects that count and record calls. All must outlive the server.
struct CallRecords {
  const Callers& callers;
  Tally& open_calls;  // by tls::ToText of the caller
  OpenConnections& connections;
  Metrics& metrics;
  AuditLog& audit;
  const platform::Clock& clock;
};

// Intercepts every call of a server:
//
// * It is counted in `open_calls` from before its handler is called until it is done. Calls of gRPC's own
//   services (reflection, health) do not pass Access::Admit, so the interceptor cancels them if the caller is
//   revoked or has too many calls or connections.
// * A request that is not the message that its method takes (cut off, of another type, invalid UTF-8) is
//   answered with INVALID_ARGUMENT and the type's name; gRPC 1.51 would answer UNIMPLEMENTED without a
//   message, as if the method did not exist. In a stream of requests gRPC does not distinguish a malformed
//   one from the end.
// * Its start, end and duration are recorded in `metrics`.
// * The audit log has a line for it if it changes something or reads what only a job's owner may read
//   (MethodRule::audited), or if it is refused. Of the request, the line has only the job's name; of a job
//   that is submitted as text, only if it is accepted.
std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface> InterceptCalls(
    const CallRecords& records);

}  // namespace tandem::controller
