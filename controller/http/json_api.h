// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <grpcpp/grpcpp.h>

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "controller/http/http_server.h"

namespace tandem::controller {

// Calls of the users' service over HTTP: /api/METHOD?FIELD=VALUE&... asks what the call of that name asks,
// with its limits and pages, and answers its message as protobuf's JSON. A repeated field may be given
// several times. Errors are those of json_answer.h. Norms have five significant digits here.
//
// Calls that only read are GETs. Calls that change something are POSTs with a session of sign_ins.h, as
// "Authorization: Bearer SESSION": such a call has the rights, the limits and the audit lines of the
// session's caller. A browser sends such a header only if the page's own script sets it, never by itself for
// another site, so another site can call nothing in its user's name. POST /api/Profile records steps and
// answers a trace in Chrome's format. Thread-safe.
class JsonApi {
 public:
  // Marks a call as one that the page makes for a session (empty: none), from a browser.
  using Mark =
      std::function<void(const std::string& session, const std::string& browser, grpc::ClientContext&)>;

  // `channel` leads to this process.
  JsonApi(std::shared_ptr<grpc::Channel> channel, Mark mark)
      : channel_(std::move(channel)), mark_(std::move(mark)) {}

  // `method` is what follows /api/; `session`: of the request, or empty.
  HttpAnswer Answer(const std::string& method, const HttpRequest& request, const std::string& session);

  // Answers a probe: 200 if the controller decides something within two seconds, otherwise 503, with a line
  // of text.
  HttpAnswer Health() ABSL_LOCKS_EXCLUDED(health_mu_);

 private:
  HttpAnswer AskHealth();

  const std::shared_ptr<grpc::Channel> channel_;
  const Mark mark_;
  std::atomic<int> in_progress_ = 0;
  std::atomic<int> profiles_in_progress_ = 0;
  absl::Mutex health_mu_;  // held while one thread asks
  HttpAnswer health_ ABSL_GUARDED_BY(health_mu_);
  absl::Time health_at_ ABSL_GUARDED_BY(health_mu_) = absl::InfinitePast();
};

}  // namespace tandem::controller
