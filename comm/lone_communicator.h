// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "comm/communicator.h"
#include "comm/communicator_factory.h"

namespace tandem::comm {

// Between two places that do not overlap.
using CopyBytes = std::function<void(char* to, const char* from, int64_t bytes)>;

// The group of one rank, on any device: each collective is one `copy`, by default in the host's memory, or
// nothing if its output is its input. On a GPU it is enqueued on the current stream. It waits for no other
// rank, so it counts as ended when it has been issued, has no deadline, and needs no other memory, no store
// and no network: any region is as good as a window. Throws std::invalid_argument for a group of several.
std::unique_ptr<Communicator> MakeLoneCommunicator(const Membership& membership, CopyBytes copy = nullptr);

}  // namespace tandem::comm
