// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "controller/metrics/metrics.h"
#include "controller/rpc/interceptors.h"
#include "platform/clock.h"

namespace tandem::controller {

// Counts every RPC, begun and ended, in `metrics`, and times it by `clock`. Both outlive the server.
std::unique_ptr<InterceptorFactory> CountRpcs(Metrics& metrics, const platform::Clock& clock);

}  // namespace tandem::controller
