// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "checkpoint/hugging_face_folder.h"
#include "checkpoint/info.h"
#include "checkpoint/shard.h"
#include "checkpoint/stored_weights.h"
#include "checkpoint/work_together.h"
#include "comm/communicator.h"
#include "platform/files.h"
#include "trainer/resume_checks.h"

namespace tandem::trainer {

// What checkpoint.start_from names, once it has been found to be of this job's model: the folder of a Hugging
// Face model, or one step of a checkpoint.
struct StartWeights {
  checkpoint::Origin origin;
  bool is_step = false;                  // of a checkpoint
  checkpoint::HuggingFaceFolder folder;  // if it is none
  checkpoint::StoredWeights weights;     // of that folder
};

// Collective. Reads headers and samples alone. Throws UserError with the reason "StartWeightsUnusable" on all
// ranks where the folder cannot be used, which names all that is wrong with it, or where two ranks see other
// weights; CheckpointError where it cannot be read now; CommError.
StartWeights FindStartWeights(platform::Files& files, comm::Communicator& comm, const ResumeOptions& options);

// Collective: fills the shards of weights and of routers' biases among `shards`, and leaves moments. Throws
// as FindStartWeights, also where weights are not finite.
void LoadStartWeights(platform::Files& files, comm::Communicator& comm, const StartWeights& start,
                      const std::vector<checkpoint::Shard>& shards,
                      const checkpoint::OnWorkProgress& on_progress);

}  // namespace tandem::trainer
