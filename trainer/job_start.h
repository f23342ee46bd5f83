// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "checkpoint/lease.h"
#include "checkpoint/owner.h"
#include "comm/communicator.h"
#include "platform/files.h"
#include "tandem/v1/job.pb.h"
#include "tandem/v1/state.pb.h"

namespace tandem::trainer {

// path: of the checkpoint; empty where there is none. message: one line.
v1::CheckpointWarning WarningOf(v1::CheckpointProblem problem, int64_t step, const std::string& path,
                                const std::string& message);

// What decides where a job starts.
struct ResumeOptions {
  checkpoint::Owner self;                   // the job that starts
  std::string directory;                    // of its checkpoints; may be empty
  std::string resume;                       // of the spec: "", "newest", "none", a path
  std::string resume_from;                  // a checkpoint that the controller chose; goes before `resume`
  int64_t last_step = 0;                    // of the job
  std::vector<std::string> layout_digests;  // of checkpoints that it can go on from, its own first
  std::string weights_dtype;                // of its main weights, as safetensors names it: "F32"
  v1::Model model;                          // resolved
  uint64_t seed = 0;
  int64_t global_batch_size = 0;  // sequences of a step
  int64_t sequence_length = 0;    // tokens
  std::string data_digest;
  std::vector<std::string> states;  // arrays of its routers, beside weights and moments
};

struct JobStart {
  checkpoint::Found from;                       // the same on all ranks; an empty path: step 0
  std::vector<v1::CheckpointWarning> warnings;  // rank 0 only; at most 8, as many as the job's record keeps
};

// Collective, and waits for the others. Makes the job the owner of its directory (checkpoint/owner.h) and
// finds the checkpoint that it starts from. Rank 0 looks and decides for all, and holds the lease of the
// directory, where there is one.
// `lost` is called on the lease's thread, with the reason, when the directory gets another owner.
// Throws UserError on all ranks
// * with the reason "CheckpointDirectoryInUse" where another job lives in the directory,
// * with the reason "NoValidCheckpoint" where `newest` finds checkpoints and none of them verifies,
// * where not every rank sees the directory, or rank 0 cannot write to it,
// * where a checkpoint that was named cannot be read, is of another model, has weights of another type,
//   or biases of routers where this job has none, or none where it has,
// * where the checkpoint is of a step that the job does not have,
// * where the directory holds later checkpoints of another job, whose names this job will need,
// * where another job has used a directory that was new or empty when this job was submitted.
JobStart StartJob(platform::Files& files, comm::Communicator& comm, const ResumeOptions& options,
                  checkpoint::HeldLease& lease, std::function<void(const std::string& reason)> lost);

}  // namespace tandem::trainer
