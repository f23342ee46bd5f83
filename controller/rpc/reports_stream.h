// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <grpcpp/support/server_callback.h>

#include <functional>

#include "controller/metrics/metrics.h"
#include "controller/store/history.h"
#include "controller/store/store.h"
#include "platform/clock.h"
#include "tandem/v1/workers.pb.h"
#include "tls/identity.h"

namespace tandem::controller {

// Opens a stream of Workers.Reports, which belongs to gRPC until it is done. Batches of reports are added to
// the history, and acknowledged when they are durable. A batch of an attempt without a rank on the worker of
// `identity` is refused. `arrived` is called after each batch.
grpc::ServerBidiReactor<v1::ReportBatch, v1::ReportAck>* OpenReports(Store& store, History& history,
                                                                     Metrics& metrics,
                                                                     const platform::Clock& clock,
                                                                     const tls::Identity& identity,
                                                                     std::function<void()> arrived);

}  // namespace tandem::controller
