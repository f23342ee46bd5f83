#pragma once

#include <string>
#include <vector>

namespace tandem::comm {
class Communicator;
}

namespace tandem::checkpoint {

// Collective: every rank's text, in rank order, on every rank. Throws CommError.
std::vector<std::string> ExchangeTexts(comm::Communicator& comm, const std::string& text);

// Collective: throws CheckpointError with the same text on every rank if one of them has an `error` (empty:
// none), naming the first such rank.
void AgreeOnSuccess(comm::Communicator& comm, const std::string& error);

}  // namespace tandem::checkpoint
