// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <grpcpp/server_context.h>

#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "controller/rpc/callers.h"
#include "controller/rpc/open_calls.h"
#include "controller/rpc/open_connections.h"
#include "controller/rpc/rate_limit.h"
#include "google/protobuf/message.h"
#include "platform/clock.h"
#include "tandem/v1/state.pb.h"

namespace tandem::controller {

// Who may call a method, by role; tls::Role::kLocal may call all of them.
struct MethodRule {
  bool user = false;  // and admins, always
  bool worker = false;
  bool owners_job = false;  // of users only the owner of the job that the request names
  bool audited = false;  // every call is a line of the audit log; of others only those that were refused are
};

// By its full name, "tandem.v1.Jobs.Cancel". Null: nobody may call it.
const MethodRule* RuleOf(std::string_view method);

// Who may do what. Thread-safe.
class Access {
 public:
  // Calls of one user or admin: that many a second in the long run, ten times as many at once.
  static constexpr double kCallsPerSecond = 50;
  // Calls of one user or admin that have not ended, watches and logs that are followed among them.
  static constexpr size_t kMostOpenCalls = 1000;

  // All outlive it.
  Access(const Callers& callers, const OpenCalls& open, OpenConnections& connections,
         const platform::Clock& clock)
      : callers_(callers),
        open_(open),
        connections_(connections),
        rate_(kCallsPerSecond, 10 * kCallsPerSecond, clock) {}

  // Asked first by every method of our services. Who calls; or Unauthenticated where the certificate was
  // revoked, or the session on the page has ended, PermissionDenied where the role may not, ResourceExhausted
  // where it calls too often or has too many connections, InvalidArgument where the request is out of bounds
  // (request_limits.h; null: it is not there yet): one line with the caller, the call, what is allowed, and
  // what to do.
  absl::StatusOr<Caller> Admit(const grpc::ServerContextBase& context, std::string_view method,
                               const google::protobuf::Message* request);

  // For methods with `owners_job`: PermissionDenied where the job is another's.
  // Whose jobs a caller's are: by name and role, so that an admin's certificate of a user's name, or a user's
  // of the name "local", owns nothing of the other's.
  static std::string OwnerOf(const tls::Identity& identity);
  static absl::Status CheckOwner(const Caller& caller, std::string_view method, const v1::Job& job);

 private:
  const Callers& callers_;
  const OpenCalls& open_;
  OpenConnections& connections_;
  RateLimit rate_;
};

}  // namespace tandem::controller
