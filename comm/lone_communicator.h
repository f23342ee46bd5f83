// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "comm/communicator.h"
#include "comm/communicator_factory.h"

namespace tandem::comm {

// The group of one rank, on any device: each collective is one copy on the current stream, or nothing if
// its output is its input. It waits for no other rank, so it has no deadline, and needs no other memory, no
// store and no network: any region is as good as a window. A copy that the device fails to do is an error of
// the stream that it is on. Throws std::invalid_argument for a group of several.
std::unique_ptr<Communicator> MakeLoneCommunicator(const Membership& membership);

}  // namespace tandem::comm
