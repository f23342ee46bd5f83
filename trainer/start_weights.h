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

// Returns one line for the user if `text` was prepared with another tokenizer than that of the Hugging Face
// model in the folder `weights`. Returns the empty string if the tokenizers agree, or if that cannot be known
// because the text is not prepared or the model has neither tokenizer.json nor eos_token_id.
std::string TokenizerDifference(platform::Files& files, const jobspec::DataText& text,
                                const std::string& weights);

// The weights in checkpoint.start_from, which fit this job's model: a folder of a Hugging Face model, or a
// step of a checkpoint.
struct StartWeights {
  checkpoint::Origin origin;
  bool is_step = false;                  // whether it is a step of a checkpoint
  checkpoint::HuggingFaceFolder folder;  // set if it is not a step
  checkpoint::StoredWeights weights;     // of that folder
};

// Collective. Reads only headers and samples. Throws UserError with the reason "StartWeightsUnusable" on all
// ranks if the folder cannot be used, with all problems, or if two ranks see different weights. Throws
// CheckpointError if the folder cannot be read now, and CommError.
StartWeights FindStartWeights(platform::Files& files, comm::Communicator& comm, const ResumeOptions& options);

// Collective. Fills the weights and routers' biases among `shards`, and leaves the moments as they are.
// Throws as FindStartWeights does, and also if weights are not finite.
void LoadStartWeights(platform::Files& files, comm::Communicator& comm, const StartWeights& start,
                      const std::vector<checkpoint::Shard>& shards,
                      const checkpoint::OnWorkProgress& on_progress);

}  // namespace tandem::trainer
