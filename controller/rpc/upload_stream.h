// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <grpcpp/support/server_callback.h>

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "controller/rpc/upload_relay.h"
#include "tls/identity.h"

namespace tandem::controller {

// The two ends of a log, or of timelines, on the way from a worker to a reader. The streams belong to gRPC
// until they are done.

// Jobs.ReadLog of these ranks for `caller` ("user/alice"), or its refusal.
grpc::ServerWriteReactor<v1::LogChunk>* OpenLog(
    UploadRelay& relay, const std::string& caller,
    const absl::StatusOr<std::vector<UploadRelay::Wanted>>& wanted);

// Jobs.Profile, likewise.
grpc::ServerWriteReactor<v1::ProfileChunk>* OpenProfile(
    UploadRelay& relay, const std::string& caller,
    const absl::StatusOr<std::vector<UploadRelay::Wanted>>& wanted);

// Workers.Upload, by the worker of `identity`: what was asked of another worker is not taken.
grpc::ServerReadReactor<v1::UploadChunk>* OpenUpload(UploadRelay& relay, const tls::Identity& identity);

}  // namespace tandem::controller
