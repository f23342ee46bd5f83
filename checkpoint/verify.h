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

// A checkpoint is known to be whole only if every byte of it has been read. The ranks share this work.

// Indices of the files that `rank` of `ranks` reads. They are neighbours, because a rank that loads needs
// such files, and have about as many bytes as every other rank's, as far as whole files allow. Every file
// belongs to one rank. Requires sizes >= 0.
fsdp::Range FilesOfRank(const std::vector<ManifestFile>& files, int rank, int ranks);

// Collective. The steps of ListSteps (folder.h) after `after` (-1: all), as rank 0 lists them. Throws
// CommError, and CheckpointError on every rank if rank 0 cannot list them.
std::vector<int64_t> ListStepsTogether(platform::Files& files, comm::Communicator& comm,
                                       const std::string& directory, int64_t after);

// Collective. Returns the manifest if every rank has read the same one as rank 0. `judge` turns the result of
// a rank's reading, which may be OK, into a status of the checkpoint. Errors are the same on every rank: that
// of WorkTogether (work_together.h) for the ranks' statuses, or FailedPrecondition, naming the rank, if a
// rank has read another manifest than rank 0 because machines do not share the folder or have a stale cache.
// Throws CommError.
absl::StatusOr<Manifest> ReadManifestTogether(
    platform::Files& files, comm::Communicator& comm, const std::string& path,
    const std::function<absl::Status(const absl::Status& read)>& judge);

// A judge that trusts only rank 0 about damage, because another rank may see another folder.
absl::Status DamageOnlyOnRankZero(const comm::Communicator& comm, const absl::Status& read);

// Collective. Returns the manifest of a whole checkpoint, or the same error on every rank. IsDamage
// (folder.h) holds for the error if rank 0 finds no manifest or a damaged one, or if two ranks (or the only
// one) find that a file is missing or has another size or digest than the manifest says. Otherwise the error
// means that a rank could not read its share, misread it, or sees other files than another rank; it is named
// unless it is 0. Damage takes precedence. Throws CommError.
absl::StatusOr<Manifest> VerifyTogether(platform::Files& files, comm::Communicator& comm,
                                        const std::string& path, const OnWorkProgress& on_progress);

// Called on every rank, on the caller's thread, when the ranks have examined the checkpoint of `step`.
// `reason` says why it is not known to be whole, the same on every rank; empty: it is.
using OnLooked = std::function<void(int64_t step, const std::string& reason)>;

// Collective. Finds the steps that exist when the job starts; all ranks return the same. Reads manifests and
// sizes, but not the content of other files. The ranks share the files as FilesOfRank says and meet after
// every step, so that no collective waits longer than a rank needs for its share of one checkpoint. A step is
// left out if any rank cannot read it now or finds it different; the reason names the first such rank unless
// it is 0. Throws CommError, and CheckpointError on every rank if rank 0 cannot list the directory. A
// directory that does not exist has no steps.
WholeSteps FindWholeSteps(platform::Files& files, comm::Communicator& comm, const std::string& directory,
                          const OnLooked& looked);

}  // namespace tandem::checkpoint
