// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "comm/communicator.h"
#include "comm/communicator_factory.h"

namespace tandem::comm {

// Copies between two places that do not overlap.
using CopyBytes = std::function<void(char* to, const char* from, int64_t bytes)>;

// Makes the communicator of a group of one rank, on any device. Each collective is one `copy` (by default
// within the host's memory), or nothing if its output is its input. For a GPU, `copy` enqueues on the current
// stream. No collective waits for another rank, so it counts as ended once it is issued, and it has no
// deadline. RegisterWindow accepts any region. Throws std::invalid_argument if the group has several ranks.
std::unique_ptr<Communicator> MakeLoneCommunicator(const Membership& membership, CopyBytes copy = nullptr);

}  // namespace tandem::comm
