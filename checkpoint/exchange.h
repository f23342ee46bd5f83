// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"

namespace tandem::comm {
class Communicator;
}

namespace tandem::checkpoint {

// Collective. Returns every rank's text, in the order of ranks, on every rank. Throws CommError.
std::vector<std::string> ExchangeTexts(comm::Communicator& comm, const std::string& text);

// Collective. Returns every rank's text, in the order of ranks, on rank 0, and nothing on the others. Throws
// CommError.
std::vector<std::string> GatherTexts(comm::Communicator& comm, const std::string& text);

// Collective. Returns rank 0's text on every rank; the texts of other ranks are ignored. Throws CommError.
std::string TextOfRankZero(comm::Communicator& comm, const std::string& text);

// Collective. If a rank has an error, throws on every rank, with the same text and the number of the first
// such rank: DirectoryLost if its error is Aborted, otherwise CheckpointError. Throws CommError.
void AgreeOnSuccess(comm::Communicator& comm, const absl::Status& status);

}  // namespace tandem::checkpoint
