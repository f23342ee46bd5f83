// SPDX-License-Identifier: Apache-2.0
#include "controller/rpc/workers_service.h"

#include "controller/rpc/reports_stream.h"
#include "controller/rpc/upload_stream.h"

namespace tandem::controller {

grpc::ServerBidiReactor<v1::WorkerMessage, v1::ControllerMessage>* WorkersService::Session(
    grpc::CallbackServerContext* /*context*/) {
  return parts_.sessions.Open(parts_.engine);
}

grpc::ServerBidiReactor<v1::ReportBatch, v1::ReportAck>* WorkersService::Reports(
    grpc::CallbackServerContext* /*context*/) {
  return OpenReports(parts_.store, parts_.history, parts_.metrics, parts_.clock, parts_.reports_arrived);
}

grpc::ServerReadReactor<v1::UploadChunk>* WorkersService::Upload(grpc::CallbackServerContext* /*context*/,
                                                                 v1::UploadDone* /*response*/) {
  return OpenUpload(parts_.uploads);
}

}  // namespace tandem::controller
