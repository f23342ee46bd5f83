// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <prometheus/collectable.h>

#include <memory>
#include <string>

#include "controller/http/http_server.h"
#include "controller/http/json_api.h"
#include "controller/http/session_api.h"

namespace tandem::controller {

// What is found at the controller's HTTP address: /metrics and /healthz; with the page also / and /api, where
// everybody who reaches it reads, and signed-in users change what they may. Thread-safe.
class Site {
 public:
  struct Options {
    bool page = true;
    // Only requests to a name of this machine are for the page: a name that a stranger's web site has pointed
    // here (DNS rebinding) is refused.
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

// The page: one file, which asks for nothing but /api.
extern const char kPageHtml[];

}  // namespace tandem::controller
