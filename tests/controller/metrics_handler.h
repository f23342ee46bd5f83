// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <utility>

#include "controller/http/http_server.h"
#include "controller/metrics/metrics.h"

namespace tandem::controller {

// Answers /metrics, as the controller does, and nothing else.
inline HttpServer::Handler MetricsHandler(std::shared_ptr<const Metrics> metrics) {
  return [metrics = std::move(metrics)](const HttpRequest& request) {
    return request.path == "/metrics" ? HttpAnswer{.type = kMetricsType, .body = MetricsText(*metrics)}
                                      : HttpAnswer{.status = 404, .body = "nothing\n"};
  };
}

}  // namespace tandem::controller
