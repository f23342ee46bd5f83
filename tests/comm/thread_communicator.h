// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "comm/communicator.h"

namespace tandem::comm {

// How a rank waits for the others within a collective: the function returns once ready() is true; it may call
// ready from any thread. If empty, the thread sleeps. A scheduler that runs several streams on one thread
// runs another stream meanwhile, so that a waiting collective does not block other collectives of its peers.
using WaitUntil = std::function<void(const std::function<bool()>& ready)>;

// Makes one group whose ranks are threads of this process. Element i is for the thread of rank i. In a group
// of one rank, a collective is a copy. If ranks call different collectives, or with different sizes, all get
// CommError. Abort, or the destruction of one rank's communicator, ends the calls of the others with a
// CommError that names this rank. Requires size > 0.
std::vector<std::unique_ptr<Communicator>> MakeThreadCommunicators(const std::string& name, int size,
                                                                   WaitUntil wait_until = {});

}  // namespace tandem::comm
