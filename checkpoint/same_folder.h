#pragma once

#include <string>

#include "absl/time/time.h"
#include "platform/files.h"
#include "platform/random.h"

namespace tandem::comm {
class Communicator;
}

namespace tandem::checkpoint {

// Collective, before step 1: rank 0 writes a random token into `directory` and every rank must see it within
// `timeout`, else the ranks would write checkpoints into folders that only look the same. Creates the
// directory. Throws CheckpointError on every rank: "checkpoint.directory: <path> is not the same folder on
// rank 1".
void CheckSameFolder(platform::Files& files, comm::Communicator& comm, const std::string& directory,
                     platform::Random& random, absl::Duration timeout);

}  // namespace tandem::checkpoint
