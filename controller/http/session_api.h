// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "controller/http/http_server.h"
#include "controller/rpc/audit.h"
#include "controller/rpc/sign_ins.h"

namespace tandem::controller {

// How a browser signs in to the page and out of it. Secrets come in the header "Authorization: Bearer SECRET"
// alone, never in a URL, and over loopback alone, since the page speaks plain HTTP. Both calls are lines of
// the audit log. Thread-safe.
class SessionApi {
 public:
  // Both outlive it.
  SessionApi(SignIns& sign_ins, AuditLog& log) : sign_ins_(sign_ins), log_(log) {}

  // POST /api/SignIn with a code: {"session": SECRET, "caller": "user/alice", "seconds": 28800}.
  HttpAnswer SignIn(const HttpRequest& request);
  // POST /api/SignOut with a session, which ends.
  HttpAnswer SignOut(const HttpRequest& request);

  // The session that the request carries; empty: it has none. What only reads needs none, so there a header
  // of another scheme is not ours (a proxy's, which has let somebody in). PermissionDenied where a session
  // came from another machine: it has been read on the way, and ends. Unauthenticated where what changes
  // something carries something else. A refusal is a line of the audit log.
  absl::StatusOr<std::string> SessionOf(const HttpRequest& request);

  // 32 hexadecimal digits; empty: there is no Authorization header. PermissionDenied where they came from
  // another machine, Unauthenticated where the header holds something else.
  static absl::StatusOr<std::string> SecretOf(const HttpRequest& request);

  // The audit line of a call that the page refuses without asking the service.
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
