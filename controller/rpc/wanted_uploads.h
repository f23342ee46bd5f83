// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "controller/rpc/upload_relay.h"
#include "tandem/v1/jobs.pb.h"

namespace tandem::controller {

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
