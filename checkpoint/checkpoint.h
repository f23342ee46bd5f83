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
  double seconds = 0;  // wall time of the save, without the removal of older checkpoints' files after it
  // On rank 0 only: the steps of the checkpoints that `keep` removed, and for each folder that could not be
  // removed (of such a checkpoint or of a failed save) the reason. Every save tries again.
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

// Called on rank 0, on the caller's thread, once the checkpoint is published and the older ones have lost
// their names. Their files are removed after this call, which may take minutes, so not_removed is still
// empty. May be unset.
using OnCommitted = std::function<void(const Saved& saved)>;

// Collective: every rank calls it with its shards. If `step-N` of this job exists and verifies, it stays; a
// damaged one is renamed. After the commit rank 0 keeps the newest `keep` checkpoints and removes older ones,
// among those in `whole`; only rank 0's `whole` is used, and it gets step-N. No checkpoint of another step is
// read.
//
// Throws CheckpointError on every rank if one rank fails (its temporary files are removed) or finds that its
// `folder` is gone, or if `step-N` is of another job or cannot be read. Throws DirectoryLost if `self` does
// not own the directory any more, and CommError. Requires self.job == info.job and self.attempt ==
// info.attempt.
Saved Save(platform::Files& files, comm::Communicator& comm, const JobFolder& folder, int keep,
           const Owner& self, const Info& info, const std::vector<Shard>& shards, WholeSteps& whole,
           const OnCommitted& committed = {});

// A checkpoint whose manifest has been read.
struct Found {
  std::string path;  // empty if there is none
  Info info;
  std::string weights_dtype;  // as safetensors names it: "F32"
  // By parameter; in version 2, a single dim with the number of elements.
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

// Collective. Finds the newest checkpoint in `directory` of a step after `after` (-1: any step) that is whole
// (verify.h). All ranks return the same; the path is empty if there is none. Throws CommError, and on every
// rank CheckpointUnreadable if it cannot be decided whether a checkpoint is damaged, and CheckpointTooNew if
// one is of a newer build, because a job that continued from an older one would lose steps.
Found FindNewest(platform::Files& files, comm::Communicator& comm, const std::string& directory,
                 int64_t after, const FindReports& reports);

// Reads and verifies one manifest, but not the files, which Load verifies. Throws CheckpointError, and
// CheckpointUnreadable if another try may succeed.
Found Inspect(platform::Files& files, const std::string& path);

// Collective: Inspects a checkpoint on every rank, after rank 0 has inspected it. Throws CommError and, on
// every rank and with the rank's number unless it is 0, CheckpointUnreadable if a rank cannot read it now, or
// CheckpointError if a rank finds no checkpoint, may not read it, or finds another one than rank 0, so that
// another try would not help.
Found InspectTogether(platform::Files& files, comm::Communicator& comm, const std::string& path);

// Collective. Fills `data` of each shard, which must have the array's type, from the files that hold its
// elements. The digests of all files of the checkpoint are verified, including files without such elements.
// At most a part of a file is in memory. Throws CommError, and CheckpointError on every rank if one could not
// read; the content of `data` is then undefined.
void Load(platform::Files& files, comm::Communicator& comm, const std::string& path,
          const std::vector<Shard>& shards, const OnWorkProgress& on_progress);

}  // namespace tandem::checkpoint
