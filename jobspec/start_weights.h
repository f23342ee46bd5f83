// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "checkpoint/hugging_face_folder.h"
#include "checkpoint/stored_weights.h"
#include "model/config.h"
#include "platform/files.h"
#include "tandem/v1/job.pb.h"

namespace tandem::jobspec {

// The folder at checkpoint.start_from: a Hugging Face model, or one step of a checkpoint.

inline constexpr char kStartFrom[] = "checkpoint.start_from";

// The tensors that the whole decoder, with all experts, needs from a folder of Hugging Face's weights.
checkpoint::WantedWeights WantedWeightsOf(const model::DecoderConfig& config);

// Whether the folder is a step of a checkpoint, that is, has a manifest.
bool IsCheckpointFolder(platform::Files& files, const std::string& path);

// Returns everything that is wrong with the folder: it cannot be read, its model is not the job's, or its
// tensors are not those that the job needs. Does not check that weights are finite, because it reads only
// headers and samples. Returns nothing for a job whose model Check refuses.
std::vector<v1::Violation> CheckStartFrom(platform::Files& files, const v1::JobSpec& resolved);

}  // namespace tandem::jobspec
