// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

#include "checkpoint/info.h"
#include "checkpoint/job_folder.h"
#include "checkpoint/owner.h"
#include "checkpoint/shard.h"
#include "checkpoint/verify.h"
#include "checkpoint/work_together.h"
#include "platform/files.h"

namespace tandem::comm {
class Communicator;
}

namespace tandem::checkpoint {

// A checkpoint is a folder `step-N` with a file per rank (safetensors) and a manifest (JSON): global
// coordinates, so any number of ranks can load it. It is written as `step-N.tmp.<attempt>.<job>`, every
// file with its XXH3-128 digest, fsynced, and published by one rename that never replaces.

struct Saved {
  std::string path;
  int64_t bytes = 0;
  std::string manifest_digest;
  double seconds =
      0;  // wall time of the save; excludes the removal of older checkpoints' files, which follows
  // On rank 0 only: the steps of older checkpoints that were removed, and the reason for each folder, of an
  // older checkpoint or of a failed save, that could not be removed. Every save tries again.
  std::vector<int64_t> removed_steps;
  std::vector<std::string> not_removed;
};

// A checkpoint could not be written or read. what() names the file and the reason.
class CheckpointError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// A checkpoint could not be read now, though it may be whole. Another try may succeed.
class CheckpointUnreadable : public CheckpointError {
 public:
  using CheckpointError::CheckpointError;
};

// A newer build wrote the checkpoint.
class CheckpointTooNew : public CheckpointError {
 public:
  using CheckpointError::CheckpointError;
};

// The directory has another owner (owner.h), which what() names. No later save can succeed.
class DirectoryLost : public CheckpointError {
 public:
  using CheckpointError::CheckpointError;
};

// Called on rank 0, on the caller's thread, once the checkpoint is published and the older checkpoints to be
// removed are renamed. Their files are removed after this call returns, which may take minutes, so
// not_removed is still empty. May be unset.
using OnCommitted = std::function<void(const Saved& saved)>;

// Collective. Writes the shards of all ranks as the checkpoint `step-N` of info.step, and publishes it. If
// this job has already saved that step and the checkpoint verifies, writes nothing; a damaged checkpoint is
// renamed first. Then adds the step to `whole`, of which only rank 0's is used, and removes all but the
// newest `keep` checkpoints in `whole`. Reads no checkpoint of another step.
//
// Throws CheckpointError on every rank if a rank fails or finds that its `folder` is gone (the temporary
// files are then removed), or if `step-N` exists and belongs to another job or cannot be read. Throws
// DirectoryLost if `self` does not own the directory any more, and CommError. Requires self.job == info.job
// and self.attempt == info.attempt.
Saved Save(platform::Files& files, comm::Communicator& comm, const JobFolder& folder, int keep,
           const Owner& self, const Info& info, const std::vector<Shard>& shards, WholeSteps& whole,
           const OnCommitted& committed = {});

// A checkpoint whose manifest has been read.
struct Found {
  std::string path;  // empty if there is none
  Info info;
  std::string weights_dtype;  // as safetensors names it: "F32"
  // Shapes by parameter. A manifest of version 2 has a single dim, the number of elements.
  std::map<std::string, fsdp::Shape> weights;
  std::vector<std::string> states;  // names of routers' arrays
  std::string digest;               // of its manifest
};

// Callbacks of FindNewest.
struct FindReports {
  // Called on rank 0 if a damaged checkpoint was skipped, with the reason.
  std::function<void(const std::string& path, const std::string& reason)> skipped;
  OnWorkProgress verified;
};

// Collective. Finds the newest whole checkpoint (verify.h) in `directory` whose step is later than `after`
// (-1: any step). All ranks return the same result; its path is empty if there is no such checkpoint. Throws
// CommError. Throws on every rank CheckpointUnreadable if it cannot be decided whether a checkpoint is
// damaged, and CheckpointTooNew if a newer build wrote a checkpoint: a job that continued from an older
// checkpoint would lose steps.
Found FindNewest(platform::Files& files, comm::Communicator& comm, const std::string& directory,
                 int64_t after, const FindReports& reports);

// Reads and verifies the manifest at `path`. The files are verified later, by Load. Throws CheckpointError,
// and CheckpointUnreadable if another try may succeed.
Found Inspect(platform::Files& files, const std::string& path);

// Collective. Calls Inspect on every rank, after rank 0 has inspected the checkpoint alone. Throws CommError.
// Throws the same error on every rank, with the number of the rank that failed unless that is 0:
// CheckpointUnreadable if the rank cannot read the checkpoint now; CheckpointError if another try would not
// help, because the rank finds no checkpoint, has no permission, or finds another checkpoint than rank 0.
Found InspectTogether(platform::Files& files, comm::Communicator& comm, const std::string& path);

// Collective. Fills `data` of each shard from the files that hold its elements; its type must be the array's.
// Together the ranks read and verify every file of the checkpoint, also files that no rank needs. Each rank
// holds only a part of a file in memory. Throws CommError, and CheckpointError on every rank if a rank could
// not read; the content of `data` is then undefined.
void Load(platform::Files& files, comm::Communicator& comm, const std::string& path,
          const std::vector<Shard>& shards, const OnWorkProgress& on_progress);

}  // namespace tandem::checkpoint
