// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "checkpoint/hugging_face_folder.h"
#include "checkpoint/shard.h"
#include "checkpoint/stored_weights.h"
#include "checkpoint/work_together.h"
#include "platform/files.h"

namespace tandem::comm {
class Communicator;
}

namespace tandem::checkpoint {

// Collective: fills `data` of each shard, whose names are of `weights.tensors`, with the elements that the
// folder has, exact in data's type where that is fp32 or fp64. Every rank reads the bytes of its own shards,
// of which a part at a time is in memory, and its share of what `weights` compares. Requires weights.ok().
//
// Returns what is wrong with the weights themselves, the same on every rank, in one line: tensors that are
// not finite, copies that differ, zeros that are not; empty: nothing. `data` is then undefined. Throws
// CommError, and on every rank CheckpointError where one could not read.
std::string LoadHuggingFace(platform::Files& files, comm::Communicator& comm, const HuggingFaceFolder& folder,
                            const StoredWeights& weights, const std::vector<Shard>& shards,
                            const OnWorkProgress& on_progress);

}  // namespace tandem::checkpoint
