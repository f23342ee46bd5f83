// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "checkpoint/folder.h"
#include "checkpoint/manifest.h"
#include "checkpoint/safetensors.h"
#include "platform/files.h"

namespace tandem::checkpoint {

// One step of a checkpoint, from which one process, such as an export, reads arrays in parts of any size and
// any order. Not thread-safe.
class SavedStep {
 public:
  // `path` is the step's folder. Reads the manifest and the header of each file. `files` must outlive this
  // object. Errors name the file. An error for which IsDamage (folder.h) holds means that the step is damaged
  // or is not a checkpoint.
  static absl::StatusOr<SavedStep> Open(platform::Files& files, const std::string& path);

  const Manifest& manifest() const { return manifest_; }
  const std::string& path() const { return path_; }

  // Finds an array by its TensorName; null if the step has none.
  const ManifestArray* Find(const std::string& name) const;

  // Reads every file and compares its digest with the manifest's.
  absl::Status Verify() const;

  // Consecutive elements of an array that are consecutive in a file.
  struct StoredRun {
    int64_t begin = 0;  // bytes from the file's beginning
    int64_t first = 0;  // index of its first element in the whole array
    int64_t elements = 0;
  };
  // Returns the elements of the range `of` (indices in the whole array) that `piece` holds. `array` must come
  // from Find.
  std::vector<StoredRun> RunsOf(const ManifestArray& array, const ManifestPiece& piece, fsdp::Range of) const;

  // The place of a piece in its file, with its digest if the manifest has one.
  DigestedBytes BytesOf(const ManifestArray& array, const ManifestPiece& piece) const;

  // The header of a file, by its index in the manifest, as Open read it.
  const FileHeader& HeaderOf(size_t file) const { return headers_[file]; }

  // Reads elements [begin, begin + count) of the whole array, in the array's dtype. Does not verify digests.
  // `array` must come from Find.
  absl::StatusOr<std::string> Read(const ManifestArray& array, int64_t begin, int64_t count) const;

 private:
  SavedStep(platform::Files& files, std::string path, Manifest manifest)
      : files_(&files), path_(std::move(path)), manifest_(std::move(manifest)) {}

  platform::Files* files_;
  std::string path_;
  Manifest manifest_;
  std::vector<FileHeader> headers_;       // by file of manifest_
  std::map<std::string, size_t> arrays_;  // TensorName → index in manifest_.arrays
};

// Receives consecutive elements of the array with index `wanted` in StreamStep's list. `first` is the index
// of the first element in the whole array. The bytes are valid until the function returns. Several threads
// call it at once. An error ends the stream.
using TakeElements = std::function<absl::Status(size_t wanted, int64_t first, std::string_view bytes)>;

// Reads the pieces of the wanted arrays and compares the digest of each with the manifest's. If the manifest
// lacks the digest of such a piece, or no array is wanted, reads and verifies every file of the step instead,
// from beginning to end. No byte is read twice. The wanted arrays must come from SavedStep::Find; null for an
// array that the step does not have.
//
// Four threads read different files or pieces, each with 8 MiB in memory at a time. `take` gets each element
// of the wanted arrays once, in any order, and before its digest is compared: only if StreamStep returns OK
// are the elements verified. Returns an error of `take`, an error of VerifiedBytes (folder.h), or Unavailable
// if a file has changed since SavedStep::Open.
absl::Status StreamStep(platform::Files& files, const SavedStep& step,
                        const std::vector<const ManifestArray*>& wanted, const TakeElements& take);

}  // namespace tandem::checkpoint
