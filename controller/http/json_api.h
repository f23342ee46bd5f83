// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <grpcpp/grpcpp.h>

#include <atomic>
#include <functional>
#include <memory>
#include <string>

#include "controller/http/http_server.h"

namespace tandem::controller {

// The reading calls of the users' service over HTTP: GET /api/METHOD?FIELD=VALUE&... asks what the call of
// that name asks, with its limits and pages, and answers its message as protobuf's JSON. A repeated field may
// stand several times. Errors are {"code": "NOT_FOUND", "message": "..."} with the HTTP status that fits.
// Norms have five significant digits here. Thread-safe.
class JsonApi {
 public:
  // Says of a call that it is the page's.
  using Mark = std::function<void(grpc::ClientContext&)>;

  // `channel` leads to this process.
  JsonApi(std::shared_ptr<grpc::Channel> channel, Mark mark)
      : channel_(std::move(channel)), mark_(std::move(mark)) {}

  // `method` is what follows /api/.
  HttpAnswer Answer(const std::string& method, const std::string& query);

  // Whether the controller serves: 200 or 503, and a line. For probes.
  HttpAnswer Health();

 private:
  const std::shared_ptr<grpc::Channel> channel_;
  const Mark mark_;
  std::atomic<int> in_progress_ = 0;
};

}  // namespace tandem::controller
