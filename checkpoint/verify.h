// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "checkpoint/retention.h"
#include "checkpoint/work_together.h"
#include "fsdp/layout.h"
#include "platform/files.h"

namespace tandem::comm {
class Communicator;
}

namespace tandem::checkpoint {

struct Manifest;
struct ManifestFile;

// Whether checkpoints are whole. To know it, VerifyTogether reads every byte; the ranks share this work.
// FindWholeSteps reads only manifests and sizes, which suffice for retention (WholeSteps in retention.h).

// Returns the indices of the files that `rank` of `ranks` reads. Every file is read by one rank, and every
// rank reads about as many bytes. A rank's files are consecutive, because those are the files that it also
// loads from. Requires sizes >= 0.
fsdp::Range FilesOfRank(const std::vector<ManifestFile>& files, int rank, int ranks);

// Collective. Returns rank 0's ListSteps (folder.h) without the steps up to `after` (-1: all steps). Throws
// CommError, and CheckpointError on every rank if rank 0 cannot list them.
std::vector<int64_t> ListStepsTogether(platform::Files& files, comm::Communicator& comm,
                                       const std::string& directory, int64_t after);

// Collective. Reads the manifest on every rank, and returns it if all ranks have read the same one. `judge`
// maps a rank's status after reading to the status that the rank reports; if it is unset, ranks other than 0
// report Unavailable instead of damage, because they may see another folder. Errors are the same on every
// rank: that of WorkTogether (work_together.h) for the reported statuses, or FailedPrecondition, naming the
// rank, if a rank has read another manifest than rank 0, because the machines do not share the folder or one
// has a stale cache. Throws CommError.
absl::StatusOr<Manifest> ReadManifestTogether(
    platform::Files& files, comm::Communicator& comm, const std::string& path,
    const std::function<absl::Status(const absl::Status& read)>& judge = {});

// Collective. Reads and verifies all files of a checkpoint. Returns the manifest if the checkpoint is whole,
// otherwise the same error on every rank. The checkpoint is damaged (IsDamage of folder.h holds for the
// error) if rank 0 finds no valid manifest, or if a file is missing or its size or digest differs from the
// manifest's on two ranks, or on the only rank. Any other error means that a newer build wrote the checkpoint
// (Unimplemented), or that a rank, which is named unless it is 0, could not read its files, misread them, or
// sees other files than another rank. Throws CommError.
absl::StatusOr<Manifest> VerifyTogether(platform::Files& files, comm::Communicator& comm,
                                        const std::string& path, const OnWorkProgress& on_progress);

// Called on every rank, on the caller's thread, when the ranks have examined the checkpoint of `step`.
// `reason`, the same on every rank, says why the checkpoint is not known to be whole; it is empty if the
// checkpoint is whole.
using OnLooked = std::function<void(int64_t step, const std::string& reason)>;

// Collective. Finds the checkpoints that count as whole (WholeSteps) when the job starts; all ranks return
// the same steps. The ranks share the files by FilesOfRank and meet after every checkpoint, so that no
// collective waits longer than a rank needs for its share of one checkpoint. A step is left out if a rank
// cannot read the manifest, if it reads another one than rank 0, or if it cannot open a file or finds another
// size than in the manifest. The reason is of the first of these checks that fails, and names the first rank
// for which it fails unless that is 0. Throws CommError, and CheckpointError on every rank if rank 0 cannot
// list the directory. A directory that does not exist has no steps.
WholeSteps FindWholeSteps(platform::Files& files, comm::Communicator& comm, const std::string& directory,
                          const OnLooked& looked);

}  // namespace tandem::checkpoint
