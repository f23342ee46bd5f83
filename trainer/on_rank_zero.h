// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>

namespace tandem::comm {
class Communicator;
}

namespace tandem::trainer {

// Collective. Returns what `decide` returned on rank 0, on every rank. If it threw, every rank throws the
// error: UserError with its reason, and any other as checkpoint::CheckpointError. Throws CommError.
std::string OnRankZero(comm::Communicator& comm, const std::function<std::string()>& decide);

}  // namespace tandem::trainer
