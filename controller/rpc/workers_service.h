// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>

#include "controller/engine.h"
#include "controller/metrics/metrics.h"
#include "controller/rpc/access.h"
#include "controller/rpc/sessions.h"
#include "controller/rpc/upload_relay.h"
#include "controller/store/history.h"
#include "controller/store/store.h"
#include "platform/clock.h"
#include "tandem/v1/workers.grpc.pb.h"

namespace tandem::controller {

// The RPCs of worker daemons: each opens a stream of its own class.
class WorkersService final : public v1::Workers::CallbackService {
 public:
  // The parts of the controller that the service calls. They must outlive it.
  struct Parts {
    Engine& engine;
    Store& store;
    History& history;
    Sessions& sessions;
    UploadRelay& uploads;
    Metrics& metrics;
    const platform::Clock& clock;
    std::function<void()> reports_arrived;  // called after each batch of reports
    Access& access;
  };
  explicit WorkersService(const Parts& parts) : parts_(parts) {}

  grpc::ServerBidiReactor<v1::WorkerMessage, v1::ControllerMessage>* Session(
      grpc::CallbackServerContext* context) override;
  grpc::ServerBidiReactor<v1::ReportBatch, v1::ReportAck>* Reports(
      grpc::CallbackServerContext* context) override;
  grpc::ServerReadReactor<v1::UploadChunk>* Upload(grpc::CallbackServerContext* context,
                                                   v1::UploadDone* response) override;

 private:
  const Parts parts_;
};

}  // namespace tandem::controller
