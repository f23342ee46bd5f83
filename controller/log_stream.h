#pragma once

#include <grpcpp/support/server_callback.h>

#include <vector>

#include "absl/status/statusor.h"
#include "controller/log_relay.h"

namespace tandem::controller {

// The two ends of a log on its way from a worker to a reader. The streams belong to gRPC until they are done.

// Jobs.ReadLog of these ranks, or its refusal.
grpc::ServerWriteReactor<v1::LogChunk>* OpenLog(LogRelay& relay,
                                                const absl::StatusOr<std::vector<LogRelay::Wanted>>& wanted);

// Workers.Upload.
grpc::ServerReadReactor<v1::UploadChunk>* OpenUpload(LogRelay& relay);

}  // namespace tandem::controller
