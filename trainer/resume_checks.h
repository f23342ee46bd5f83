// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "checkpoint/data_segment.h"
#include "checkpoint/owner.h"
#include "checkpoint/stored_weights.h"
#include "fsdp/slice.h"
#include "tandem/v1/job.pb.h"
#include "tandem/v1/state.pb.h"

namespace tandem::trainer {

// What decides where a job starts.
struct ResumeOptions {
  checkpoint::Owner self;             // the job that starts
  std::string directory;              // of its checkpoints; may be empty
  std::string resume;                 // of the spec: "", "newest", "none", a path
  std::string start_from;             // of the spec: the folder of its first weights; may be empty
  checkpoint::WantedWeights weights;  // what the model wants of such a folder
  std::string resume_from;            // a checkpoint that the controller chose; goes before `resume`
  int64_t last_step = 0;              // of the job
  std::map<std::string, fsdp::Shape> parameters;  // of the whole model, by name
  std::string weights_dtype;                      // of its main weights, as safetensors names it: "F32"
  v1::Model model;                                // resolved
  std::string training;                           // as in checkpoint::Info
  checkpoint::DataSegment data;                   // what the job reads (data_position.h)
  std::string data_digest;                        // as in checkpoint::Info
  std::string data_content_digest;                // as there
  std::vector<std::string> states;                // arrays of its routers, beside weights and moments
};

// path: of the checkpoint; empty where there is none. message: one line.
v1::CheckpointWarning WarningOf(v1::CheckpointProblem problem, int64_t step, const std::string& path,
                                const std::string& message);

// Throws UserError where `found` is of another model, has weights of another type, or biases of routers where
// this job has none, or none where it has, or is of a step that the job does not have, or counts its text
// otherwise than this build (data_position.h). Reads nothing.
void CheckResumable(const ResumeOptions& options, const checkpoint::Found& found);

// The same of `found` whose weights alone a job starts from, which may be of any step.
void CheckStartable(const ResumeOptions& options, const checkpoint::Found& found);

// The job goes on with another seed, reads other texts or these otherwise, or trains otherwise than the
// checkpoint's job did: a warning for each, with the values before and now.
std::vector<v1::CheckpointWarning> DifferencesOf(const ResumeOptions& options,
                                                 const checkpoint::Found& start);

}  // namespace tandem::trainer
