// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "checkpoint/manifest.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/verified_bytes.h"
#include "platform/files.h"

namespace tandem::checkpoint {

// One step of a checkpoint, whose arrays one process reads, in parts of any size and any order: what needs no
// ranks, as an export does. Not thread-safe.
class SavedStep {
 public:
  // path: of the step's folder. Reads the manifest and the header of each file. `files` outlives it. The
  // errors name the file; those for which IsDamage (folder.h) say that it is damaged or no checkpoint.
  static absl::StatusOr<SavedStep> Open(platform::Files& files, const std::string& path);

  const Manifest& manifest() const { return manifest_; }
  const std::string& path() const { return path_; }

  // Null where the step has no array of that TensorName.
  const ManifestArray* Find(const std::string& name) const;

  // Reads every file and compares its digest with the manifest's.
  absl::Status Verify() const;

  // Consecutive elements of an array where a file has them.
  struct StoredRun {
    int64_t begin = 0;  // bytes from the file's beginning
    int64_t first = 0;  // element of the whole array
    int64_t elements = 0;
  };
  // Of the elements `of` of the whole of an array that Find returned, those of one of its pieces.
  std::vector<StoredRun> RunsOf(const ManifestArray& array, const ManifestPiece& piece, fsdp::Range of) const;

  // Where a piece of such an array lies, with its digest, if the manifest has that.
  DigestedBytes BytesOf(const ManifestArray& array, const ManifestPiece& piece) const;

  // What Open read of a file, by its index in the manifest: where its arrays lie.
  const std::string& BeginningOf(size_t file) const { return beginnings_[file]; }

  // The bytes of elements [begin, begin + count) of the whole of an array that Find returned.
  absl::StatusOr<std::string> Read(const ManifestArray& array, int64_t begin, int64_t count) const;

 private:
  SavedStep(platform::Files& files, std::string path, Manifest manifest)
      : files_(&files), path_(std::move(path)), manifest_(std::move(manifest)) {}

  platform::Files* files_;
  std::string path_;
  Manifest manifest_;
  std::vector<std::string> beginnings_;     // of manifest_.files: their headers
  std::vector<SafetensorsHeader> headers_;  // of manifest_.files
  std::map<std::string, size_t> arrays_;    // by TensorName, index in manifest_.arrays
};

}  // namespace tandem::checkpoint
