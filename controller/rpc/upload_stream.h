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

// The two ends of a log, or of timelines, on the way from a worker to a reader. The streams belong to gRPC
// until they are done.

// Jobs.ReadLog (of v1::LogChunk) or Jobs.Profile (of v1::ProfileChunk) of these ranks for `caller`
// ("user/alice"), or its refusal.
template <typename Chunk>
grpc::ServerWriteReactor<Chunk>* OpenReader(UploadRelay& relay, const std::string& caller,
                                            const absl::StatusOr<std::vector<UploadRelay::Wanted>>& wanted);

// Workers.Upload, by the worker of `identity`: what was asked of another worker is not taken.
grpc::ServerReadReactor<v1::UploadChunk>* OpenUpload(UploadRelay& relay, const tls::Identity& identity);

// What the workers of a job are asked to upload for a user that reads its logs or profiles it.

// The logs of the rank and the attempt of the request; all ranks, and the newest attempt, if it names none.
absl::StatusOr<std::vector<UploadRelay::Wanted>> WantedLogs(const v1::Job& job,
                                                            const v1::LogRequest& request);

// The timelines of all ranks. id: of the profile, not 0 and below 2^46, so that ranks can agree on it as a
// part of a double.
absl::StatusOr<std::vector<UploadRelay::Wanted>> WantedProfiles(const v1::Job& job,
                                                                const v1::ProfileRequest& request,
                                                                uint64_t id);

}  // namespace tandem::controller
