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

// A checkpoint is a folder `step-N` with a safetensors file from each rank and a manifest in JSON. The
// manifest places elements within whole arrays, not within ranks, so any number of ranks can load the
// checkpoint. A save writes to `step-N.tmp.<attempt>.<job>`, records the XXH3-128 digest of every file, and
// fsyncs the files. Then it publishes the folder by one rename, which never replaces an existing folder.

struct Saved {
  std::string path;
  int64_t bytes = 0;
  std::string manifest_digest;
  double seconds = 0;  // wall time of the save, without the later removal of older checkpoints' files
  // On rank 0 only: the steps of the older checkpoints that were removed, and, for each folder (of an older
  // checkpoint or of a failed save) that could not be removed, the reason. The next save tries again to
  // remove these.
  std::vector<int64_t> removed_steps;
  std::vector<std::string> not_removed;
};

// A checkpoint could not be written or read. what() names the file and the reason.
class CheckpointError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// A checkpoint cannot be read now, which does not mean that it is damaged. Another try may succeed.
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
// removed are renamed. Save removes the files of the older ones only after this call, which may take minutes,
// so `saved.not_removed` does not say yet what becomes of them. May be unset.
using OnCommitted = std::function<void(const Saved& saved)>;

// Collective. Writes the shards of all ranks as the checkpoint `step-N` of info.step, publishes it, and adds
// the step to `whole`, of which only rank 0's is used. Then removes the older checkpoints in `whole` except
// the newest `keep` - 1. Reads no checkpoint of another step. If a `step-N` exists already and is damaged, it
// is first renamed. If it verifies and is of this job, nothing is written and nothing older removed; the step
// is only added to `whole`.
//
// Throws CheckpointError on every rank if a rank fails or finds that its `folder` is gone (the temporary
// files are then removed), or if `step-N` exists and belongs to another job, cannot be read, or was written
// by a newer build. Throws DirectoryLost if `self` does not own the directory any more, and CommError.
// Requires self.job == info.job and self.attempt == info.attempt.
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

// Callbacks of FindNewest. Both must be set.
struct FindReports {
  // Called on rank 0 if a damaged checkpoint was skipped, with the reason.
  std::function<void(const std::string& path, const std::string& reason)> skipped;
  OnWorkProgress verified;
};

// Collective. Finds the newest whole checkpoint (verify.h) in `directory` whose step is later than `after`
// (-1: any step). All ranks return the same result; its path is empty if there is no such checkpoint. Damaged
// checkpoints are skipped. Throws on every rank CheckpointUnreadable if it meets a checkpoint of which it
// cannot decide whether it is damaged, and CheckpointTooNew if it meets one that a newer build wrote: a job
// that continued from an older checkpoint instead would lose steps. Throws CommError, and CheckpointError on
// every rank if rank 0 cannot list the directory.
Found FindNewest(platform::Files& files, comm::Communicator& comm, const std::string& directory,
                 int64_t after, const FindReports& reports);

// Reads and verifies the manifest of the checkpoint in the folder `path`. The other files are verified later,
// by Load. Throws CheckpointUnreadable if another try may succeed, CheckpointTooNew if a newer build wrote
// the checkpoint, otherwise CheckpointError.
Found Inspect(platform::Files& files, const std::string& path);

// Collective. Inspects the checkpoint on every rank. Must be called after rank 0 alone has called Inspect
// with success. Throws CommError. Throws the same error on every rank, with the number of the rank that
// failed unless that is 0: CheckpointUnreadable if the rank cannot read the checkpoint now, CheckpointTooNew
// if a newer build wrote it, and CheckpointError if another try would not help, because the rank finds no
// checkpoint, has no permission, or finds another checkpoint than rank 0.
Found InspectTogether(platform::Files& files, comm::Communicator& comm, const std::string& path);

// Collective. Fills `data` of each shard from the files that hold its elements; the type of `data` must be
// that of the array in the checkpoint. Each rank reads and verifies, as a whole, every file that has elements
// of its shards and every file that has no elements at all; it holds only a part of a file in memory. Throws
// CommError, and CheckpointError on every rank if a rank could not read, found damage, or asked for an array
// that the checkpoint does not have; the content of `data` is then undefined.
void Load(platform::Files& files, comm::Communicator& comm, const std::string& path,
          const std::vector<Shard>& shards, const OnWorkProgress& on_progress);

}  // namespace tandem::checkpoint
