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

// Facts about a job that decide which checkpoint it can start from.
struct ResumeOptions {
  checkpoint::Owner self;             // the job that starts
  std::string directory;              // directory of its checkpoints; may be empty
  std::string resume;                 // from the spec: "", "newest", "none", or a path
  std::string start_from;             // from the spec: the folder of its first weights; may be empty
  checkpoint::WantedWeights weights;  // what the model needs from that folder
  std::string resume_from;            // a checkpoint that the controller chose; has priority over `resume`
  int64_t last_step = 0;              // of the job
  std::map<std::string, fsdp::Shape> parameters;  // of the whole model, by name
  std::string weights_dtype;                      // type of its main weights, as safetensors names it: "F32"
  v1::Model model;                                // resolved
  std::string training;                           // as in checkpoint::Info
  checkpoint::DataSegment data;                   // what the job reads (data_position.h)
  std::string data_digest;                        // as in checkpoint::Info
  std::string data_content_digest;                // as in checkpoint::Info
  std::vector<std::string> states;                // names of its routers' arrays
};

// Makes a warning. `path` is the checkpoint's, or empty if there is none. `message` is one line.
v1::CheckpointWarning WarningOf(v1::CheckpointProblem problem, int64_t step, const std::string& path,
                                const std::string& message);

// Throws UserError if `found` is of another model, has weights of another type, differs from the job in
// whether routers have biases, is later than the job's last step, or has other counts of windows than this
// build computes (ContinueData in data_position.h). Reads no files.
void CheckResumable(const ResumeOptions& options, const checkpoint::Found& found);

// Throws UserError if the job cannot start with the weights of `found`, which may be of any step.
void CheckStartable(const ResumeOptions& options, const checkpoint::Found& found);

// Returns a warning for each way in which the job differs from the checkpoint's job: another seed, other
// texts or another order of them, other training. Each has the values before and now.
std::vector<v1::CheckpointWarning> DifferencesOf(const ResumeOptions& options,
                                                 const checkpoint::Found& start);

}  // namespace tandem::trainer
