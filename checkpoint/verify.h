// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

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

// Collective: Unavailable, on every rank, where a rank's manifest has another digest than rank 0's, which is
// named: a folder that the machines do not share, or a stale cache. Throws CommError.
absl::Status AgreeOnManifest(comm::Communicator& comm, const std::string& digest);

// Collective. The manifest of a whole checkpoint, or the same error on every rank: one of IsDamage (folder.h)
// where rank 0 finds none or a damaged one, or two ranks (the only one) find a file missing, or of another
// size or digest than the manifest says; else Unavailable: a rank could not read its share, misreads it, or
// sees other files than another rank (it is named, unless it is 0). Damage goes before that. Throws
// CommError.
absl::StatusOr<Manifest> VerifyTogether(platform::Files& files, comm::Communicator& comm,
                                        const std::string& path, const OnWorkProgress& on_progress);

}  // namespace tandem::checkpoint
