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

// Collective. Fills `data` of each shard from the folder. Each shard must be valid (IsPart) and have a name
// in `weights.tensors`, otherwise throws std::logic_error. The values are converted to data's type; fp32 and
// fp64 hold them exactly. Every rank reads the bytes of its own shards, a part at a time. The ranks also
// check the tensors in weights.copies and weights.zeros, each rank a share of every tensor. Requires
// weights.ok().
//
// Returns on every rank the same line about what is wrong with the weights: values that are not finite,
// copies that differ, zeros that are not zero. `data` is then undefined. Returns an empty string if nothing
// is wrong. Throws CommError, and CheckpointError on every rank if a rank could not read.
std::string LoadHuggingFace(platform::Files& files, comm::Communicator& comm, const HuggingFaceFolder& folder,
                            const StoredWeights& weights, const std::vector<Shard>& shards,
                            const OnWorkProgress& on_progress);

}  // namespace tandem::checkpoint
