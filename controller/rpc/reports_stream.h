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

// One stream of Workers.Reports: batches go to the history, and are acknowledged when they are durable.
// Reports of a job without a rank on the worker of `identity` are refused. `arrived` is called after each
// batch. The stream belongs to gRPC until it is done.
grpc::ServerBidiReactor<v1::ReportBatch, v1::ReportAck>* OpenReports(Store& store, History& history,
                                                                     Metrics& metrics,
                                                                     const platform::Clock& clock,
                                                                     const tls::Identity& identity,
                                                                     std::function<void()> arrived);

}  // namespace tandem::controller
