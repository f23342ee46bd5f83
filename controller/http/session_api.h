// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "controller/http/http_server.h"
#include "controller/rpc/audit.h"
#include "controller/rpc/sign_ins.h"

namespace tandem::controller {

// Signs browsers in to the page and out of it. Secrets are accepted only in the header "Authorization: Bearer
// SECRET", never in a URL, and only over loopback, because the page speaks plain HTTP. The audit log has a
// line for each call. Thread-safe.
class SessionApi {
 public:
  // Both must outlive the SessionApi.
  SessionApi(SignIns& sign_ins, AuditLog& log) : sign_ins_(sign_ins), log_(log) {}

  // Answers POST /api/SignIn with a code: {"session": SECRET, "caller": "user/alice", "seconds": 28800}.
  HttpAnswer SignIn(const HttpRequest& request);
  // Answers POST /api/SignOut with a session, which it ends.
  HttpAnswer SignOut(const HttpRequest& request);

  // Returns the session that the request carries, or "" if it has none. A request that only reads needs none,
  // so an Authorization header of another scheme is ignored there: it is meant for a proxy. PermissionDenied
  // if the request comes from another machine: the session was readable on the way, and is ended.
  // Unauthenticated if a request that changes something carries no session. The audit log has a line for each
  // refusal.
  absl::StatusOr<std::string> SessionOf(const HttpRequest& request);

  // Returns the secret of a request, 32 hexadecimal digits, or "" if there is no Authorization header.
  // PermissionDenied if the request comes from another machine, Unauthenticated if the header holds something
  // else.
  static absl::StatusOr<std::string> SecretOf(const HttpRequest& request);

  // Writes the audit line of a call that was refused before it reached the gRPC service.
  void Refused(const HttpRequest& request, const absl::Status& why) { Write(std::nullopt, request, why); }

 private:
  void Write(const std::optional<Caller>& caller, const HttpRequest& request, const absl::Status& result);

  SignIns& sign_ins_;
  AuditLog& log_;
};

// Returns the address at which a browser on the controller's own machine reaches the page that is served at
// `address`. Users may sign in only from that machine: FailedPrecondition if it cannot reach the page by
// loopback.
absl::StatusOr<std::string> PageForSignIn(const std::string& address);

}  // namespace tandem::controller
