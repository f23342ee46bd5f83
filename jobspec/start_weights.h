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

// The folder that checkpoint.start_from names: a Hugging Face model, or one step of a checkpoint.

inline constexpr char kStartFrom[] = "checkpoint.start_from";

// What the whole decoder, with all experts, needs of a folder of Hugging Face's weights.
checkpoint::WantedWeights WantedWeightsOf(const model::DecoderConfig& config);

// Whether the folder is a step of a checkpoint, that is, has a manifest.
bool IsCheckpointFolder(platform::Files& files, const std::string& path);

// Everything that is wrong with the folder, except whether every weight is finite: it cannot be read, is not
// of the job's model, or has other tensors. Reads only headers and samples. Returns nothing for a job whose
// model Check refuses.
std::vector<v1::Violation> CheckStartFrom(platform::Files& files, const v1::JobSpec& resolved);

}  // namespace tandem::jobspec
