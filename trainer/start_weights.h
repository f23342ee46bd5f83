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
#include "jobspec/data_texts.h"
#include "platform/files.h"
#include "trainer/resume_checks.h"

namespace tandem::trainer {

// Says in one line for the user how the tokenizer with which a text was prepared differs from that of the
// Hugging Face model in `weights`. Empty if they agree, or if it cannot be known because the text is not
// prepared, or the model has no tokenizer.json and no eos_token_id.
std::string TokenizerDifference(platform::Files& files, const jobspec::DataText& text,
                                const std::string& weights);

// The weights that checkpoint.start_from names, after they were found to be of this job's model: a folder of
// a Hugging Face model, or one step of a checkpoint.
struct StartWeights {
  checkpoint::Origin origin;
  bool is_step = false;                  // whether it is a step of a checkpoint
  checkpoint::HuggingFaceFolder folder;  // set if it is not a step
  checkpoint::StoredWeights weights;     // of that folder
};

// Collective. Reads only headers and samples. Throws UserError with the reason "StartWeightsUnusable" on all
// ranks if the folder cannot be used, with everything that is wrong with it, or if two ranks see different
// weights. Throws CheckpointError if it cannot be read now, and CommError.
StartWeights FindStartWeights(platform::Files& files, comm::Communicator& comm, const ResumeOptions& options);

// Collective. Fills the weights and routers' biases among `shards`, and leaves the moments as they are.
// Throws as FindStartWeights does, and also if weights are not finite.
void LoadStartWeights(platform::Files& files, comm::Communicator& comm, const StartWeights& start,
                      const std::vector<checkpoint::Shard>& shards,
                      const checkpoint::OnWorkProgress& on_progress);

}  // namespace tandem::trainer
