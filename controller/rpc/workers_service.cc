// SPDX-License-Identifier: Apache-2.0
#include "controller/rpc/workers_service.h"

#include "controller/rpc/owned_stream.h"
#include "controller/rpc/reports_stream.h"
#include "controller/rpc/upload_stream.h"

namespace tandem::controller {

grpc::ServerBidiReactor<v1::WorkerMessage, v1::ControllerMessage>* WorkersService::Session(
    grpc::CallbackServerContext* context) {
  const absl::StatusOr<Caller> caller = parts_.access.Admit(*context, "tandem.v1.Workers.Session", nullptr);
  return caller.ok()
             ? parts_.sessions.Open(parts_.engine, *caller)
             : RefuseCall<grpc::ServerBidiReactor<v1::WorkerMessage, v1::ControllerMessage>>(caller.status());
}

grpc::ServerBidiReactor<v1::ReportBatch, v1::ReportAck>* WorkersService::Reports(
    grpc::CallbackServerContext* context) {
  const absl::StatusOr<Caller> caller = parts_.access.Admit(*context, "tandem.v1.Workers.Reports", nullptr);
  return caller.ok() ? OpenReports(parts_.store, parts_.history, parts_.metrics, parts_.clock,
                                   caller->identity, parts_.reports_arrived)
                     : RefuseCall<grpc::ServerBidiReactor<v1::ReportBatch, v1::ReportAck>>(caller.status());
}

grpc::ServerReadReactor<v1::UploadChunk>* WorkersService::Upload(grpc::CallbackServerContext* context,
                                                                 v1::UploadDone* /*response*/) {
  const absl::StatusOr<Caller> caller = parts_.access.Admit(*context, "tandem.v1.Workers.Upload", nullptr);
  return caller.ok() ? OpenUpload(parts_.uploads, caller->identity)
                     : RefuseCall<grpc::ServerReadReactor<v1::UploadChunk>>(caller.status());
}

}  // namespace tandem::controller
