// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "checkpoint/work_together.h"
#include "fsdp/layout.h"
#include "platform/files.h"

namespace tandem::comm {
class Communicator;
}

namespace tandem::checkpoint {

struct Manifest;
struct ManifestFile;

// Whether a checkpoint is whole is known when every byte of it has been read. The ranks share that.

// The files that `rank` of `ranks` reads, as indices: neighbours, as a rank that loads needs them, and about
// as many bytes as the other ranks' as far as whole files allow. Every file is one rank's. Requires sizes >=
// 0.
fsdp::Range FilesOfRank(const std::vector<ManifestFile>& files, int rank, int ranks);

// Collective: the steps of ListSteps (folder.h) after `after` (-1: all), as rank 0 lists them. Throws
// CommError, and on every rank CheckpointError where rank 0 cannot.
std::vector<int64_t> ListStepsTogether(platform::Files& files, comm::Communicator& comm,
                                       const std::string& directory, int64_t after);

// Collective: the manifest, once every rank has read the one that rank 0 has. `judge` makes of what a rank's
// reading has come to, which may be OK, what it says of the checkpoint. The same error on every rank: that of
// WorkTogether (work_together.h) of what the ranks' judges say; FailedPrecondition where a rank has read
// another manifest than rank 0, which is named: a folder that the machines do not share, or a stale cache.
// Throws CommError.
absl::StatusOr<Manifest> ReadManifestTogether(
    platform::Files& files, comm::Communicator& comm, const std::string& path,
    const std::function<absl::Status(const absl::Status& read)>& judge);

// A judge: damage is what rank 0 finds. Another rank may see another folder.
absl::Status DamageOnlyOnRankZero(const comm::Communicator& comm, const absl::Status& read);

// Collective. The manifest of a whole checkpoint, or the same error on every rank: one of IsDamage (folder.h)
// where rank 0 finds none or a damaged one, or two ranks (the only one) find a file missing, or of another
// size or digest than the manifest says; else another error: a rank could not read its share, misreads it, or
// sees other files than another rank (it is named, unless it is 0). Damage goes before that. Throws
// CommError.
absl::StatusOr<Manifest> VerifyTogether(platform::Files& files, comm::Communicator& comm,
                                        const std::string& path, const OnWorkProgress& on_progress);

}  // namespace tandem::checkpoint
