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

// Collective. Fills `data` of each shard with elements of the folder; the shards' names are those of
// `weights.tensors`. Values are exact, in data's type, if that is fp32 or fp64. Every rank reads the bytes of
// its own shards, of which only a part is in memory at a time, and its share of what `weights` compares.
// Requires weights.ok().
//
// Returns, on every rank and in one line, what is wrong with the weights themselves: tensors that are not
// finite, copies that differ, zeros that are not zero. Empty: nothing. If it is not empty, `data` is
// undefined. Throws CommError, and CheckpointError on every rank if one could not read.
std::string LoadHuggingFace(platform::Files& files, comm::Communicator& comm, const HuggingFaceFolder& folder,
                            const StoredWeights& weights, const std::vector<Shard>& shards,
                            const OnWorkProgress& on_progress);

}  // namespace tandem::checkpoint
