// SPDX-License-Identifier: Apache-2.0
#include "controller/http/site.h"

#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "controller/metrics/metrics_text.h"

namespace tandem::controller {
namespace {

// Scripts and styles of the page alone, answers of this server alone; in nobody's frame.
constexpr char kPolicy[] =
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:; connect-src "
    "'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

// "localhost:9464", "127.0.0.1", "[::1]:80". An address is no name that anybody could have pointed here.
bool IsLocalName(absl::string_view host) {
  const size_t colon = host.rfind(':');
  if (colon != absl::string_view::npos && !absl::EndsWith(host, "]")) {
    host = host.substr(0, colon);
  }
  return host == "localhost" || host == "[::1]" ||
         (absl::StartsWith(host, "127.") && host.find_first_not_of("0123456789.") == absl::string_view::npos);
}

}  // namespace

Site::Site(const Options& options, std::shared_ptr<const prometheus::Collectable> metrics,
           std::shared_ptr<grpc::Channel> channel, JsonApi::Mark mark)
    : options_(options), metrics_(std::move(metrics)), api_(std::move(channel), std::move(mark)) {}

HttpAnswer Site::Answer(const HttpRequest& request) {
  if (request.path == "/metrics") {
    return {.type = kMetricsType, .body = MetricsText(*metrics_)};
  }
  if (request.path == "/healthz") {
    return api_.Health();
  }
  absl::string_view method = request.path;
  const bool is_api = absl::ConsumePrefix(&method, "/api/");
  if (!is_api && request.path != "/") {
    return {.status = 404, .body = "there is / and /metrics\n"};
  }
  if (!options_.page) {
    return {.status = 404, .body = "the page is off; tandem-controller --page on serves it here\n"};
  }
  if (options_.local_names_only && !IsLocalName(request.host)) {
    return {.status = 403, .body = "ask for this page by localhost or 127.0.0.1\n"};
  }
  if (is_api) {
    return api_.Answer(std::string(method), request.query);
  }
  return {.type = "text/html; charset=utf-8",
          .body = kPageHtml,
          .headers = {{"Content-Security-Policy", kPolicy},
                      {"Cache-Control", "no-cache"},
                      {"Referrer-Policy", "no-referrer"}}};
}

}  // namespace tandem::controller
