// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "checkpoint/job_folder.h"
#include "checkpoint/verify.h"
#include "comm/communicator.h"
#include "platform/files.h"
#include "tandem/v1/state.pb.h"
#include "trainer/resume_checks.h"
#include "trainer/start_weights.h"

namespace tandem::trainer {

struct JobStart {
  checkpoint::Found from;  // the same on all ranks; if the path is empty, the job starts at step 0
  // Set if the job starts from checkpoint.start_from instead of a checkpoint.
  std::optional<StartWeights> weights;
  // On rank 0 only. At most 9, because a job's record keeps few.
  std::vector<v1::CheckpointWarning> warnings;
  checkpoint::JobFolder folder;  // this rank's own, if the job has a directory
  checkpoint::WholeSteps whole;  // of the job's directory; only rank 0's is used
};

// Callbacks of a start.
struct StartListener {
  // Called on the lease's thread, with the reason, when the directory gets another owner.
  std::function<void(const std::string& reason)> lost;
  // Called on every rank, on the caller's thread, whenever the ranks have verified or removed another part of
  // a checkpoint, or checked the sizes of another checkpoint's files. Rank 0 logs the progress.
  std::function<void()> moved;
};

// Collective. Creates the job's checkpoint directory if it does not exist, makes the job its owner
// (checkpoint/owner.h), and finds the checkpoint that the job starts from. For resume: newest, the ranks
// together read and verify checkpoints (checkpoint/verify.h); if there is no checkpoint the job starts from
// step 1, with a warning if the directory did not exist either. Rank 0 decides everything else for all ranks,
// and sets `lease` to the lease of the directory.
//
// Throws UserError on all ranks if
// * another live job owns the directory (reason "CheckpointDirectoryInUse"),
// * resume: newest finds checkpoints and none of them verifies (reason "NoValidCheckpoint"),
// * not every rank sees the directory, or rank 0 may not write to it,
// * the checkpoint that the spec or the controller names is not whole, may not be read, or differs between
//   ranks,
// * the checkpoint is of another model, has weights of another type, or only one of checkpoint and job has
//   biases of routers,
// * the checkpoint's step is later than the job's last step,
// * the directory has later checkpoints of another job, whose names this job will need,
// * checkpoint.start_from does not fit this model, or cannot be used (reason "StartWeightsUnusable"),
// * the directory was new or empty when this job was submitted, and another job has used it since.
//
// Throws CheckpointError if a checkpoint or the directory cannot be read now, or if rank 0 cannot write
// because the disk is full or fails (ThrowIfUnwritable in failure.h). Throws CommError.
JobStart StartJob(platform::Files& files, comm::Communicator& comm, const ResumeOptions& options,
                  checkpoint::HeldLease& lease, const StartListener& listener);

}  // namespace tandem::trainer
