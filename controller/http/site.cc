// SPDX-License-Identifier: Apache-2.0
#include "controller/http/site.h"

#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "controller/http/json_answer.h"
#include "controller/metrics/metrics.h"
#include "platform/net_address.h"

namespace tandem::controller {
namespace {

// The page runs scripts and styles of its own alone, loads answers of this server alone, and is not shown in
// another site's frame.
constexpr char kPolicy[] =
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:; connect-src "
    "'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

}  // namespace

Site::Site(const Options& options, std::shared_ptr<const prometheus::Collectable> metrics,
           std::shared_ptr<grpc::Channel> channel, JsonApi::Mark mark, SessionApi sessions)
    : options_(options),
      metrics_(std::move(metrics)),
      api_(std::move(channel), std::move(mark)),
      sessions_(sessions) {}

HttpAnswer Site::Answer(const HttpRequest& request) {
  absl::string_view method = request.path;
  const bool is_api = absl::ConsumePrefix(&method, "/api/");
  if (request.is_post && !is_api) {
    return {.status = 405, .body = "only GET is answered here\n", .headers = {{"Allow", "GET, HEAD"}}};
  }
  if (request.path == "/metrics") {
    return {.type = kMetricsType, .body = MetricsText(*metrics_)};
  }
  if (request.path == "/healthz") {
    return api_.Health();
  }
  if (!is_api && request.path != "/") {
    return {.status = 404, .body = "not found; allowed: /, /api, /healthz and /metrics\n"};
  }
  if (!options_.page) {
    return {.status = 404, .body = "the page is off; tandem-controller --page on serves it here\n"};
  }
  if (options_.local_names_only && !platform::IsLoopback(platform::HostOf(request.host))) {
    return {.status = 403, .body = "open this page as localhost or 127.0.0.1\n"};
  }
  if (is_api && request.from_other_site) {
    return JsonError(absl::PermissionDeniedError("calls from other sites' pages are refused"));
  }
  if (is_api) {
    return AnswerApi(std::string(method), request);
  }
  return {.type = "text/html; charset=utf-8",
          .body = kPageHtml,
          .headers = {{"Content-Security-Policy", kPolicy},
                      {"Cache-Control", "no-cache"},
                      {"Referrer-Policy", "no-referrer"}}};
}

HttpAnswer Site::AnswerApi(const std::string& method, const HttpRequest& request) {
  if (method == "SignIn" || method == "SignOut") {
    return !request.is_post     ? WrongMethod(method, /*must_be_post=*/true)
           : method == "SignIn" ? sessions_.SignIn(request)
                                : sessions_.SignOut(request);
  }
  const absl::StatusOr<std::string> session = sessions_.SessionOf(request);
  if (!session.ok()) {
    return JsonError(session.status());
  }
  HttpAnswer answer = api_.Answer(method, request, *session);
  if (session->empty() && answer.status == 401) {  // the service's calls have audit lines of their own
    sessions_.Refused(request, absl::UnauthenticatedError("no user is signed in"));
  }
  return answer;
}

}  // namespace tandem::controller
