#pragma once

#include <string>
#include <vector>

namespace tandem::comm {
class Communicator;
}

namespace tandem::checkpoint {

// Collective: the texts of all ranks, in rank order; they may differ in length. Throws CommError.
std::vector<std::string> GatherTexts(comm::Communicator& comm, const std::string& text);

}  // namespace tandem::checkpoint
