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

// Calls of the users' service over HTTP: /api/METHOD?FIELD=VALUE&... makes the gRPC call of that name, with
// the same limits and pages, and answers its response as protobuf's JSON. A repeated field may be given
// several times. Errors are those of json_answer.h. Norms have five significant digits here.
//
// Calls that only read are GETs. Calls that change something are POSTs with a session of sign_ins.h, as
// "Authorization: Bearer SESSION": such a call has the rights, the limits and the audit lines of the
// session's caller. Only the page's own script sets that header, so no other site's page can call anything in
// the user's name. POST /api/Profile records steps and answers a trace in Chrome's format. Thread-safe.
class JsonApi {
 public:
  // Marks a call as made by the page for a session (empty: none) of the browser at an address.
  using Mark =
      std::function<void(const std::string& session, const std::string& browser, grpc::ClientContext&)>;

  // `channel` leads to the gRPC server of this process.
  JsonApi(std::shared_ptr<grpc::Channel> channel, Mark mark)
      : channel_(std::move(channel)), mark_(std::move(mark)) {}

  // `method` is what follows /api/; `session` is that of the request, or empty.
  HttpAnswer Answer(const std::string& method, const HttpRequest& request, const std::string& session);

  // Answers a health probe with a line of text: status 200 if the controller's engine answers within two
  // seconds, otherwise 503.
  HttpAnswer Health() ABSL_LOCKS_EXCLUDED(health_mu_);

 private:
  HttpAnswer AskHealth();

  const std::shared_ptr<grpc::Channel> channel_;
  const Mark mark_;
  std::atomic<int> in_progress_ = 0;
  std::atomic<int> profiles_in_progress_ = 0;
  absl::Mutex health_mu_;  // held by the thread that asks
  HttpAnswer health_ ABSL_GUARDED_BY(health_mu_);
  absl::Time health_at_ ABSL_GUARDED_BY(health_mu_) = absl::InfinitePast();
};

}  // namespace tandem::controller
