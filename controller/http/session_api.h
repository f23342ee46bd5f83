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
  // Both outlive it.
  SessionApi(SignIns& sign_ins, AuditLog& log) : sign_ins_(sign_ins), log_(log) {}

  // POST /api/SignIn with a code: {"session": SECRET, "caller": "user/alice", "seconds": 28800}.
  HttpAnswer SignIn(const HttpRequest& request);
  // POST /api/SignOut with a session, which ends.
  HttpAnswer SignOut(const HttpRequest& request);

  // Returns the session that the request carries, or "" if it has none. A request that only reads needs none,
  // so a header of another scheme is ignored there: it is for a proxy. PermissionDenied if a session comes
  // from another machine; it was readable on the way, and is ended. Unauthenticated if a request that changes
  // something carries no session. The audit log has a line for each refusal.
  absl::StatusOr<std::string> SessionOf(const HttpRequest& request);

  // Returns 32 hexadecimal digits, or "" if there is no Authorization header. PermissionDenied if they come
  // from another machine, Unauthenticated if the header holds something else.
  static absl::StatusOr<std::string> SecretOf(const HttpRequest& request);

  // Writes the audit line of a call that the page refuses without asking the service.
  void Refused(const HttpRequest& request, const absl::Status& why) { Write(std::nullopt, request, why); }

 private:
  void Write(const std::optional<Caller>& caller, const HttpRequest& request, const absl::Status& result);

  SignIns& sign_ins_;
  AuditLog& log_;
};

// Where a browser on the controller's own machine, from which alone one may sign in, finds the page that is
// served at `address`. FailedPrecondition if only the network's side of it is served.
absl::StatusOr<std::string> PageForSignIn(const std::string& address);

}  // namespace tandem::controller
