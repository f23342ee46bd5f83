// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "comm/communicator.h"

namespace tandem::comm {

// How a rank waits for the others in the middle of a collective: returns once ready() is true; ready may be
// called from any thread. Empty: the thread sleeps. A thread that does the work of several streams runs
// another stream meanwhile, so that a waiting collective does not block the peers' other collectives.
using WaitUntil = std::function<void(const std::function<bool()>& ready)>;

// One group whose ranks are threads of this process: element i is for rank i, each for one thread. A group
// of one rank costs a copy. Ranks that call different collectives, or with different sizes, all get
// CommError. Abort, or the destruction of one rank's communicator, ends the calls of the others with
// CommError naming that rank. Requires size > 0.
std::vector<std::unique_ptr<Communicator>> MakeThreadCommunicators(const std::string& name, int size,
                                                                   WaitUntil wait_until = {});

}  // namespace tandem::comm
