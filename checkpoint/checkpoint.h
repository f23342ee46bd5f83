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
#include "checkpoint/whole_steps.h"
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
  double seconds = 0;  // wall time of the save, up to the removal of older checkpoints' files
  // Rank 0 only: the steps of the checkpoints that `keep` removed, and for each folder that was to be
  // removed, of these or of a save that failed, why it could not be. Every save tries again.
  std::vector<int64_t> removed_steps;
  std::vector<std::string> not_removed;
};

// Why a checkpoint could not be written or read: names the file and the reason.
class CheckpointError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// It could not be read, which does not say that it is damaged: the next try may find it whole.
class CheckpointUnreadable : public CheckpointError {
 public:
  using CheckpointError::CheckpointError;
};

// A newer build wrote it.
class CheckpointTooNew : public CheckpointError {
 public:
  using CheckpointError::CheckpointError;
};

// The directory has another owner (owner.h), named in what(): no later save can succeed.
class DirectoryLost : public CheckpointError {
 public:
  using CheckpointError::CheckpointError;
};

// Called on rank 0, on the caller's thread, once the checkpoint is there and the older ones have lost their
// names. Their files are removed after it, which may take minutes: not_removed says nothing yet. May be
// empty.
using OnCommitted = std::function<void(const Saved& saved)>;

// Collective: every rank calls it with its shards. If `step-N` of this job is there already and verifies, it
// stays; a damaged one is renamed. After the commit rank 0 keeps the newest `keep` and removes older ones, of
// those in `whole`; only its `whole` is used, and it gets step-N. No checkpoint of another step is read. On
// every rank it throws CheckpointError if one rank fails (its temporary files are removed) or finds that its
// `folder` is gone, or `step-N` is of another job or cannot be read, DirectoryLost if `self` does not own the
// directory any more, or CommError. Requires self.job == info.job and self.attempt == info.attempt.
Saved Save(platform::Files& files, comm::Communicator& comm, const JobFolder& folder, int keep,
           const Owner& self, const Info& info, const std::vector<Shard>& shards, WholeSteps& whole,
           const OnCommitted& committed = {});

// A checkpoint whose manifest has been read.
struct Found {
  std::string path;  // empty: there is none
  Info info;
  std::string weights_dtype;                   // as safetensors names it: "F32"
  std::map<std::string, fsdp::Shape> weights;  // by parameter; of version 2, their number of elements
  std::vector<std::string> states;             // arrays of routers, by name
  std::string digest;                          // of its manifest
};

// What FindNewest reports while it looks.
struct FindReports {
  // On rank 0: a damaged one was passed over, with the reason.
  std::function<void(const std::string& path, const std::string& reason)> skipped;
  OnWorkProgress verified;
};

// Collective: the newest checkpoint in `directory` of a step after `after` (-1: of any) that is whole
// (verify.h), the same on every rank, or an empty path where there is none. Throws CommError, and on every
// rank CheckpointUnreadable if it cannot be known whether one is damaged, and CheckpointTooNew if one is of a
// newer build: a job that went on from an older one would lose steps.
Found FindNewest(platform::Files& files, comm::Communicator& comm, const std::string& directory,
                 int64_t after, const FindReports& reports);

// Reads and verifies one manifest; the files are for Load. Throws CheckpointError, and CheckpointUnreadable
// where another try may succeed.
Found Inspect(platform::Files& files, const std::string& path);

// Collective: Inspect of a checkpoint that rank 0 has just inspected. Throws CommError, and on every rank,
// naming the rank unless it is 0: CheckpointUnreadable where one cannot read it now; CheckpointError where
// one finds none there, may not read it, or finds another than rank 0, so that waiting does not help.
Found InspectTogether(platform::Files& files, comm::Communicator& comm, const std::string& path);

// Collective: fills `data`, of the array's type, of each shard from whatever files hold those elements; the
// digests of these files are verified, and of those that hold none. Of a file a part at a time is in memory.
// Throws CommError, and CheckpointError: on every rank where one could not
// read; what `data` holds is undefined then.
void Load(platform::Files& files, comm::Communicator& comm, const std::string& path,
          const std::vector<Shard>& shards, const OnWorkProgress& on_progress);

}  // namespace tandem::checkpoint
