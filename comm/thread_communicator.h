#pragma once

#include <memory>
#include <string>
#include <vector>

#include "comm/communicator.h"

namespace tandem::comm {

// One group whose ranks are threads of this process: element i is for rank i, each for one thread. A group
// of one rank costs a copy. Ranks that call different collectives, or with different sizes, all get
// CommError. Abort, or the destruction of one rank's communicator, ends the calls of the others with
// CommError naming that rank. Requires size > 0.
std::vector<std::unique_ptr<Communicator>> MakeThreadCommunicators(const std::string& name, int size);

}  // namespace tandem::comm
