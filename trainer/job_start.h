// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "checkpoint/job_folder.h"
#include "checkpoint/lease.h"
#include "checkpoint/whole_steps.h"
#include "comm/communicator.h"
#include "platform/files.h"
#include "tandem/v1/state.pb.h"
#include "trainer/resume_checks.h"
#include "trainer/start_weights.h"

namespace tandem::trainer {

struct JobStart {
  checkpoint::Found from;               // the same on all ranks; an empty path: step 0
  std::optional<StartWeights> weights;  // where `from` is empty and the job starts from weights
  // Rank 0 only; at most 9, of which 8, as many as the job's record keeps, are about the start itself.
  std::vector<v1::CheckpointWarning> warnings;
  checkpoint::JobFolder folder;  // each rank's own, where the job has a directory
  checkpoint::WholeSteps whole;  // of the job's directory; only rank 0's is used
};

// Who hears of a start.
struct StartListener {
  // On the lease's thread, with the reason, when the directory gets another owner.
  std::function<void(const std::string& reason)> lost;
  // On every rank, on the caller's thread: the ranks have verified or removed another part of a checkpoint,
  // of which rank 0's log says how far they are, or looked at the files of another one.
  std::function<void()> moved;
};

// Collective, and waits for the others. Makes the job's directory, which is not made again in this attempt,
// makes the job its owner (checkpoint/owner.h) and finds the checkpoint that it starts from, the newest one
// by reading it, which the ranks share (checkpoint/verify.h). Rank 0 decides the rest for all, and holds the
// lease of the directory, where there is one. `newest` starts from step 1 where it finds none, and warns
// where the directory was not there either. Throws UserError on all ranks
// * with the reason "CheckpointDirectoryInUse" where another job lives in the directory,
// * with the reason "NoValidCheckpoint" where `newest` finds checkpoints and none of them verifies,
// * where not every rank sees the directory, or rank 0 may not write to it,
// * where a checkpoint that was named is not whole, may not be read, or is not the same for every rank,
// * where it is of another model, has weights of another type, or biases of routers where this job has none,
//   or none where it has,
// * where the checkpoint is of a step that the job does not have,
// * where the directory holds later checkpoints of another job, whose names this job will need,
// * with the reason "StartWeightsUnusable" where checkpoint.start_from is not of this model, or cannot be
// used,
// * where another job has used a directory that was new or empty when this job was submitted.
// CheckpointError where a checkpoint, or the directory, cannot be read now, or rank 0 cannot write to it for
// a reason that is not the job's (directory_error.h): a full disk, or one that fails. CommError.
JobStart StartJob(platform::Files& files, comm::Communicator& comm, const ResumeOptions& options,
                  checkpoint::HeldLease& lease, const StartListener& listener);

}  // namespace tandem::trainer
