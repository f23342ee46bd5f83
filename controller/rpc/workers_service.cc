// SPDX-License-Identifier: Apache-2.0
#include "controller/rpc/workers_service.h"

#include "controller/rpc/reports_stream.h"
#include "controller/rpc/streams.h"
#include "controller/rpc/upload_stream.h"

namespace tandem::controller {

grpc::ServerBidiReactor<v1::WorkerMessage, v1::ControllerMessage>* WorkersService::Session(
    grpc::CallbackServerContext* context) {
  const absl::StatusOr<Caller> caller = parts_.access.Admit(*context, "tandem.v1.Workers.Session", nullptr);
  if (!caller.ok()) {
    return RefuseCall{caller.status()};
  }
  return parts_.sessions.Open(parts_.engine, *caller);
}

grpc::ServerBidiReactor<v1::ReportBatch, v1::ReportAck>* WorkersService::Reports(
    grpc::CallbackServerContext* context) {
  const absl::StatusOr<Caller> caller = parts_.access.Admit(*context, "tandem.v1.Workers.Reports", nullptr);
  if (!caller.ok()) {
    return RefuseCall{caller.status()};
  }
  return OpenReports(parts_.store, parts_.history, parts_.metrics, parts_.clock, caller->identity,
                     parts_.reports_arrived);
}

grpc::ServerReadReactor<v1::UploadChunk>* WorkersService::Upload(grpc::CallbackServerContext* context,
                                                                 v1::UploadDone* /*response*/) {
  const absl::StatusOr<Caller> caller = parts_.access.Admit(*context, "tandem.v1.Workers.Upload", nullptr);
  if (!caller.ok()) {
    return RefuseCall{caller.status()};
  }
  return OpenUpload(parts_.uploads, caller->identity);
}

}  // namespace tandem::controller
