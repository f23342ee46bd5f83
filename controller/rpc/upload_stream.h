// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <grpcpp/support/server_callback.h>

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "controller/rpc/upload_relay.h"
#include "tandem/v1/jobs.pb.h"
#include "tls/identity.h"

namespace tandem::controller {

// The two streams by which a log, or timelines, go from a worker to a reader. They belong to gRPC until they
// are done.

// Opens Jobs.ReadLog (with v1::LogChunk) or Jobs.Profile (with v1::ProfileChunk) of the wanted ranks for
// `caller` ("user/alice"). If `wanted` is an error, the stream ends with it.
template <typename Chunk>
grpc::ServerWriteReactor<Chunk>* OpenReader(UploadRelay& relay, const std::string& caller,
                                            const absl::StatusOr<std::vector<UploadRelay::Wanted>>& wanted);

// Opens Workers.Upload by the worker of `identity`. Uploads that another worker was asked for are not
// accepted.
grpc::ServerReadReactor<v1::UploadChunk>* OpenUpload(UploadRelay& relay, const tls::Identity& identity);

// Return the uploads to ask the workers of a job for, when a user reads its logs or profiles it.

// The logs of the rank and attempt in the request; without a rank, of all ranks; without an attempt, of the
// newest.
absl::StatusOr<std::vector<UploadRelay::Wanted>> WantedLogs(const v1::Job& job,
                                                            const v1::LogRequest& request);

// The timelines of all ranks. `id` is the profile's: not 0, and below 2^46, so that ranks can agree on it in
// a part of a double.
absl::StatusOr<std::vector<UploadRelay::Wanted>> WantedProfiles(const v1::Job& job,
                                                                const v1::ProfileRequest& request,
                                                                uint64_t id);

}  // namespace tandem::controller
