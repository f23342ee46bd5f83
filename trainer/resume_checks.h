// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "checkpoint/info.h"
#include "checkpoint/owner.h"
#include "checkpoint/stored_weights.h"
#include "fsdp/slice.h"
#include "tandem/v1/job.pb.h"
#include "tandem/v1/state.pb.h"

namespace tandem::trainer {

// The facts that decide where a job starts.
struct ResumeOptions {
  checkpoint::Owner self;             // the job that starts
  std::string directory;              // directory of its checkpoints; may be empty
  std::string resume;                 // from the spec: "", "newest", "none", or a path
  std::string start_from;             // from the spec: the folder of its first weights; may be empty
  checkpoint::WantedWeights weights;  // what the model needs of such a folder
  std::string resume_from;            // a checkpoint that the controller chose; has priority over `resume`
  int64_t last_step = 0;              // of the job
  std::map<std::string, fsdp::Shape> parameters;  // of the whole model, by name
  std::string weights_dtype;                      // type of its main weights, as safetensors names it: "F32"
  v1::Model model;                                // resolved
  std::string training;                           // as in checkpoint::Info
  checkpoint::DataSegment data;                   // what the job reads (data_position.h)
  std::string data_digest;                        // as in checkpoint::Info
  std::string data_content_digest;                // as in checkpoint::Info
  std::vector<std::string> states;                // arrays of its routers, besides weights and moments
};

// Makes a warning. `path` is the checkpoint's, or empty if there is none. `message` is one line.
v1::CheckpointWarning WarningOf(v1::CheckpointProblem problem, int64_t step, const std::string& path,
                                const std::string& message);

// Throws UserError if `found` is of another model, has weights of another type, has biases of routers and
// this job has none or the reverse, is of a step that the job does not have, or counts its text differently
// from this build (data_position.h). Reads no files.
void CheckResumable(const ResumeOptions& options, const checkpoint::Found& found);

// Does the same for a job that takes only the weights of `found`, which may be of any step.
void CheckStartable(const ResumeOptions& options, const checkpoint::Found& found);

// Warnings for a job that continues with another seed, reads other texts or reads them differently, or trains
// differently from the checkpoint's job: one for each difference, with the values before and now.
std::vector<v1::CheckpointWarning> DifferencesOf(const ResumeOptions& options,
                                                 const checkpoint::Found& start);

}  // namespace tandem::trainer
