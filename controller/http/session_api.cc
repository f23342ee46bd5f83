// SPDX-License-Identifier: Apache-2.0
#include "controller/http/session_api.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "controller/http/json_answer.h"
#include "platform/host.h"
#include "platform/net_address.h"

namespace tandem::controller {
namespace {

constexpr size_t kSecretDigits = 32;

// Returns nullopt if the header has no secret of ours.
std::optional<std::string> Bearer(const HttpRequest& request) {
  absl::string_view secret = request.authorization;
  if (!absl::ConsumePrefix(&secret, "Bearer ") || secret.size() != kSecretDigits ||
      secret.find_first_not_of("0123456789abcdef") != absl::string_view::npos) {
    return std::nullopt;
  }
  return std::string(secret);
}

}  // namespace

absl::StatusOr<std::string> SessionApi::SecretOf(const HttpRequest& request) {
  if (request.authorization.empty()) {
    return std::string();
  }
  const std::optional<std::string> secret = Bearer(request);
  if (!secret.has_value()) {
    return absl::UnauthenticatedError("the Authorization header is not that of a code or a session");
  }
  if (!platform::IsLoopback(request.client_ip)) {
    return absl::PermissionDeniedError(
        absl::StrCat("this page speaks plain HTTP, which others can read, so only the controller's own "
                     "machine may sign in, not ",
                     request.client_ip, "; come through a tunnel: ssh -L 9464:127.0.0.1:9464 HOST"));
  }
  return *secret;
}

absl::StatusOr<std::string> SessionApi::SessionOf(const HttpRequest& request) {
  const std::optional<std::string> bearer = Bearer(request);
  if (!request.is_post && !bearer.has_value()) {
    return std::string();
  }
  absl::StatusOr<std::string> secret = SecretOf(request);
  if (!secret.ok()) {
    Write(bearer.has_value() ? sign_ins_.End(*bearer) : std::nullopt, request, secret.status());
  }
  return secret;
}

void SessionApi::Write(const std::optional<Caller>& caller, const HttpRequest& request,
                       const absl::Status& result) {
  log_.Write({.who = caller.has_value() ? tls::ToText(caller->identity) : "unknown",
              .from = absl::StrCat("page ", request.client),
              .what = absl::StrCat("page", absl::StripPrefix(request.path, "/api")),
              .result = result});
}

HttpAnswer SessionApi::SignIn(const HttpRequest& request) {
  const absl::StatusOr<std::string> code = SecretOf(request);
  std::optional<SignIns::Session> session;
  if (code.ok()) {
    session = sign_ins_.Redeem(*code);
  }
  const absl::Status result =
      !code.ok()            ? code.status()
      : session.has_value() ? absl::OkStatus()
                            : absl::UnauthenticatedError(
                                  "this sign-in was used before, or its minute is over; ask for another with "
                                  "`tandem sign-in`");
  Write(session.has_value() ? std::optional<Caller>(session->caller) : std::nullopt, request, result);
  if (!result.ok()) {
    return JsonError(result);
  }
  return JsonAnswer(200, absl::StrCat("{\"session\":", JsonText(session->secret),
                                      ",\"caller\":", JsonText(tls::ToText(session->caller.identity)),
                                      ",\"seconds\":", absl::ToInt64Seconds(session->life), "}"));
}

HttpAnswer SessionApi::SignOut(const HttpRequest& request) {
  const absl::StatusOr<std::string> session = SecretOf(request);
  std::optional<Caller> caller;
  if (session.ok()) {
    caller = sign_ins_.End(*session);
  }
  const absl::Status result = !session.ok() ? session.status()
                              : caller.has_value()
                                  ? absl::OkStatus()
                                  : absl::UnauthenticatedError("this sign-in has ended before");
  Write(caller, request, result);
  return result.ok() ? JsonAnswer(200, "{}") : JsonError(result);
}

absl::StatusOr<std::string> PageForSignIn(const std::string& address) {
  if (platform::IsLocalAddress(address)) {
    return address;
  }
  platform::HostPort here = platform::ReadHostPort(address).value_or(platform::HostPort{});
  if (platform::IsEveryAddress(here.host)) {
    here.host = here.host == "::" ? "::1" : "127.0.0.1";
    return platform::TextOf(here);
  }
  return absl::FailedPreconditionError(
      absl::StrCat("the page at ", address,
                   " speaks plain HTTP on a network, so nobody may sign in to it; start the controller with "
                   "--metrics-listen 127.0.0.1:",
                   here.port, " and come through a tunnel"));
}

}  // namespace tandem::controller
