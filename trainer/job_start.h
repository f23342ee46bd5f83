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
  std::optional<StartWeights> weights;  // set if the job starts from other weights, without a checkpoint
  // On rank 0 only, at most 9: up to 8 about the start itself, as many as the job's record keeps, and one
  // more.
  std::vector<v1::CheckpointWarning> warnings;
  checkpoint::JobFolder folder;  // this rank's own, if the job has a directory
  checkpoint::WholeSteps whole;  // of the job's directory; only rank 0's is used
};

// Callbacks of a start.
struct StartListener {
  // Called on the lease's thread, with the reason, when the directory gets another owner.
  std::function<void(const std::string& reason)> lost;
  // Called on every rank, on the caller's thread, when the ranks have verified or removed another part of a
  // checkpoint, or looked at the files of another one. Rank 0's log shows how far they are.
  std::function<void()> moved;
};

// Collective; waits for the other ranks. Makes the job's directory, which is not made again in this attempt,
// makes the job its owner (checkpoint/owner.h), and finds the checkpoint that the job starts from. The newest
// checkpoint is found by reading it, which the ranks share (checkpoint/verify.h). Rank 0 decides everything
// else for all, and holds the lease of the directory if there is one. `newest` starts from step 1 if it finds
// no checkpoint, and warns if there was no directory either.
//
// Throws UserError on all ranks if
// * another job lives in the directory (reason "CheckpointDirectoryInUse"),
// * `newest` finds checkpoints and none of them verifies (reason "NoValidCheckpoint"),
// * not every rank sees the directory, or rank 0 may not write to it,
// * a checkpoint that was named is not whole, may not be read, or is not the same for every rank,
// * the checkpoint is of another model, has weights of another type, or has biases of routers and this job
//   has none, or the reverse,
// * the checkpoint is of a step that the job does not have,
// * the directory holds later checkpoints of another job, whose names this job will need,
// * checkpoint.start_from is not of this model, or cannot be used (reason "StartWeightsUnusable"),
// * another job has used a directory that was new or empty when this job was submitted.
//
// Throws CheckpointError if a checkpoint, or the directory, cannot be read now, or if rank 0 cannot write to
// it for a reason that is not the job's fault (failure.h), such as a full or failing disk. Throws
// CommError.
JobStart StartJob(platform::Files& files, comm::Communicator& comm, const ResumeOptions& options,
                  checkpoint::HeldLease& lease, const StartListener& listener);

}  // namespace tandem::trainer
