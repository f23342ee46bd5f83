// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <grpcpp/server_context.h>

#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "controller/rpc/call_limits.h"
#include "controller/rpc/callers.h"
#include "controller/rpc/open_connections.h"
#include "google/protobuf/message.h"
#include "platform/clock.h"
#include "tandem/v1/state.pb.h"

namespace tandem::controller {

// The roles that may call a method; tls::Role::kLocal may call all methods.
struct MethodRule {
  bool user = false;  // and admins, who may do what users may
  bool worker = false;
  bool audited = false;  // every call is in the audit log, not only refused calls
};

// Finds the rule of a method by its full name, "tandem.v1.Jobs.Cancel"; null if no role may call it.
const MethodRule* RuleOf(std::string_view method);

// Decides whether a caller may make a call. Thread-safe.
class Access {
 public:
  // How many calls a second one user or admin may make in the long run; at once, ten times as many.
  static constexpr double kCallsPerSecond = 50;
  // The most open calls of one user or admin, including watches and followed logs.
  static constexpr size_t kMostOpenCalls = 1000;

  // All must outlive it.
  Access(const Callers& callers, const Tally& open, OpenConnections& connections,
         const platform::Clock& clock)
      : callers_(callers),
        open_(open),
        connections_(connections),
        rate_(kCallsPerSecond, 10 * kCallsPerSecond, clock) {}

  // Returns the caller; every method of our services calls this first. Unauthenticated if the caller's
  // certificate was revoked or its session on the page has ended, PermissionDenied if its role may not call
  // the method, ResourceExhausted if it calls too often or has too many connections, InvalidArgument if the
  // request is out of bounds (call_limits.h; null: not read yet). Errors are one line: the caller, the
  // call, what is allowed, and what to do.
  absl::StatusOr<Caller> Admit(const grpc::ServerContextBase& context, std::string_view method,
                               const google::protobuf::Message* request);

  // Returns the owner of a caller's jobs: the name of a user; for the other roles, and for a user "local",
  // the role too, so that no two callers share an owner.
  static std::string OwnerOf(const tls::Identity& identity);
  // PermissionDenied if the caller is a user, but not the owner of the job. Call it for methods that only a
  // job's owner and admins may call.
  static absl::Status CheckOwner(const Caller& caller, std::string_view method, const v1::Job& job);

 private:
  const Callers& callers_;
  const Tally& open_;
  OpenConnections& connections_;
  RateLimit rate_;
};

}  // namespace tandem::controller
