// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"

namespace tandem::comm {
class Communicator;
}

namespace tandem::checkpoint {

// Collective: every rank's text, in rank order, on every rank. Throws CommError.
std::vector<std::string> ExchangeTexts(comm::Communicator& comm, const std::string& text);

// Collective: every rank's text, in rank order, on rank 0; on the others none. Throws CommError.
std::vector<std::string> GatherTexts(comm::Communicator& comm, const std::string& text);

// Collective: rank 0's text, on every rank; what another gives is not used. Throws CommError.
std::string TextOfRankZero(comm::Communicator& comm, const std::string& text);

// Collective: throws with the same text on every rank if one of them has an error, naming the first such
// rank: DirectoryLost if that is Aborted, else CheckpointError. Throws CommError.
void AgreeOnSuccess(comm::Communicator& comm, const absl::Status& status);

}  // namespace tandem::checkpoint
