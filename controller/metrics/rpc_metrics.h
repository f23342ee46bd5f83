// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <grpcpp/support/server_interceptor.h>

#include <memory>

#include "controller/metrics/metrics.h"

namespace tandem::controller {

// Counts every RPC, begun and ended, in `metrics`, which outlives the server.
std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface> CountRpcs(Metrics& metrics);

}  // namespace tandem::controller
