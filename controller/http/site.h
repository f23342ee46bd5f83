// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <prometheus/collectable.h>

#include <memory>
#include <string>

#include "controller/http/http_server.h"
#include "controller/http/json_api.h"
#include "controller/http/session_api.h"

namespace tandem::controller {

// HttpServer reads a request and passes it to Site, which answers metrics and the page itself, signs in and
// out through SessionApi, and passes /api to JsonApi, which calls the users' gRPC service within this
// process.

// Answers the requests to the controller's HTTP address: /metrics and /healthz and, if the page is on, / and
// /api. Every client that reaches the address may read these; through /api, signed-in users may change what
// their role allows. Thread-safe.
class Site {
 public:
  struct Options {
    bool page = true;
    // Refuse requests for the page under names that are not this machine's: another web site may have pointed
    // its own name here (DNS rebinding).
    bool local_names_only = true;
  };
  Site(const Options& options, std::shared_ptr<const prometheus::Collectable> metrics,
       std::shared_ptr<grpc::Channel> channel, JsonApi::Mark mark, SessionApi sessions);

  HttpAnswer Answer(const HttpRequest& request);

 private:
  HttpAnswer AnswerApi(const std::string& method, const HttpRequest& request);

  const Options options_;
  const std::shared_ptr<const prometheus::Collectable> metrics_;
  JsonApi api_;
  SessionApi sessions_;
};

// The page: one file of HTML, whose script requests only /api.
extern const char kPageHtml[];

}  // namespace tandem::controller
