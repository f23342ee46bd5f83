// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/folder.h"
#include "checkpoint/manifest.h"
#include "checkpoint/verify.h"
#include "checkpoint/work_together.h"
#include "comm/communicator.h"

namespace tandem::checkpoint {
namespace {

[[noreturn]] void FailUnreadable(const std::string& path, const absl::Status& error) {
  if (absl::IsUnimplemented(error)) {
    throw CheckpointTooNew(absl::StrCat("checkpoint ", path, ": ", error.message()));
  }
  throw CheckpointUnreadable(absl::StrCat(
      "checkpoint ", path, " cannot be read now, which does not say that it is damaged: ", error.message(),
      "; try again when it can be, move it away, or name another with checkpoint.resume"));
}

Found FoundAt(const std::string& path, const Manifest& manifest) {
  Found found{.path = path, .info = manifest.info, .digest = manifest.digest};
  for (const ManifestArray& array : manifest.arrays) {
    if (array.kind == kWeight) {
      found.weights_dtype = found.weights.empty() ? array.dtype : found.weights_dtype;
      found.weights.emplace(array.name, array.shape);
    } else if (array.kind == kState) {
      found.states.push_back(array.name);
    }
  }
  std::sort(found.states.begin(), found.states.end());
  return found;
}

}  // namespace

Found FindNewest(platform::Files& files, comm::Communicator& comm, const std::string& directory,
                 int64_t after, const FindReports& reports) {
  for (const int64_t step : ListStepsTogether(files, comm, directory, after)) {
    const std::string path = absl::StrCat(directory, "/", StepName(step));
    const absl::StatusOr<Manifest> manifest = VerifyTogether(files, comm, path, reports.verified);
    if (manifest.ok()) {
      return FoundAt(path, *manifest);
    }
    if (!IsDamage(manifest.status())) {
      FailUnreadable(path, manifest.status());
    }
    if (comm.rank() == 0) {
      reports.skipped(path, std::string(manifest.status().message()));
    }
  }
  return {};
}

Found Inspect(platform::Files& files, const std::string& path) {
  const absl::StatusOr<Manifest> manifest = ReadFolderManifest(files, path);
  // Waiting grants no permission, so a folder that may not be read is an error at once.
  if (!manifest.ok() && !IsDamage(manifest.status()) && !absl::IsPermissionDenied(manifest.status())) {
    FailUnreadable(path, manifest.status());
  }
  if (!manifest.ok()) {
    throw CheckpointError(absl::StrCat("checkpoint ", path, ": ", manifest.status().message()));
  }
  return FoundAt(path, *manifest);
}

Found InspectTogether(platform::Files& files, comm::Communicator& comm, const std::string& path) {
  const absl::StatusOr<Manifest> manifest =
      ReadManifestTogether(files, comm, path, [&](const absl::Status& read) {
        if (!IsDamage(read) && !absl::IsPermissionDenied(read)) {
          return read;
        }
        // Rank 0 could read it a moment ago, so its error will pass; another rank may see another folder.
        return comm.rank() == 0
                   ? absl::UnavailableError(read.message())
                   : absl::InvalidArgumentError(absl::StrCat("rank ", comm.rank(), ": ", read.message()));
      });
  if (manifest.ok()) {
    return FoundAt(path, *manifest);
  }
  if (!IsDamage(manifest.status()) && !absl::IsFailedPrecondition(manifest.status())) {
    FailUnreadable(path, manifest.status());
  }
  throw CheckpointError(
      absl::StrCat("checkpoint ", path, " is not the same for every rank: ", manifest.status().message()));
}

}  // namespace tandem::checkpoint
