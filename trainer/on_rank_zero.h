// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>

namespace tandem::comm {
class Communicator;
}

namespace tandem::trainer {

// Collective: what rank 0 decides, on every rank. Every rank throws its error: UserError with its reason, and
// any other as checkpoint::CheckpointError. Throws CommError.
std::string OnRankZero(comm::Communicator& comm, const std::function<std::string()>& decide);

}  // namespace tandem::trainer
