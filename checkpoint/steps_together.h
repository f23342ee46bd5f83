// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "platform/files.h"

namespace tandem::comm {
class Communicator;
}

namespace tandem::checkpoint {

// Collective: the steps after `after` (-1: all) that have a folder in `directory`, newest first, as rank 0
// lists them. Throws CommError, and on every rank CheckpointError where rank 0 cannot.
std::vector<int64_t> ListStepsTogether(platform::Files& files, comm::Communicator& comm,
                                       const std::string& directory, int64_t after);

}  // namespace tandem::checkpoint
