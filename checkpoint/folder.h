// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "checkpoint/manifest.h"
#include "checkpoint/owner.h"
#include "checkpoint/safetensors.h"
#include "platform/files.h"
#include "platform/xxh3.h"

namespace tandem::checkpoint {

// The names in a checkpoint directory, and the checks of a folder in it.

std::string StepName(int64_t step);                        // "step-200"
std::optional<int64_t> StepOfName(std::string_view name);  // inverse of StepName; unset for other names

// The folder to which an attempt writes a step: "step-200.tmp.3.0123456789ab". The name contains the attempt
// and the job, so no two attempts write to the same folder.
std::string TemporaryName(int64_t step, const Owner& owner);

// The suffix of a folder that waits for its removal (retention.h).
inline constexpr char kGone[] = ".gone";

// The parts of a temporary name that identify the writer.
struct TemporaryFolder {
  int attempt = 0;
  std::string job;  // empty in names that older builds made
};
std::optional<TemporaryFolder> ParseTemporaryName(std::string_view name);

// The steps that have a folder in `directory`, newest first, whether or not their checkpoints are whole. If
// the directory does not exist, there are none.
absl::StatusOr<std::vector<int64_t>> ListSteps(platform::Files& files, const std::string& directory);

// Reads the manifest of the checkpoint in the folder `path`. If the folder's name is that of a step, checks
// that the manifest is of this step; other names are allowed.
absl::StatusOr<Manifest> ReadFolderManifest(platform::Files& files, const std::string& path);

// Checks that the file has the size that the manifest states. Returns InvalidArgument if not.
absl::Status CheckSize(platform::Files& files, const std::string& path, const ManifestFile& file);

// Whether an error of the functions in this file means that the checkpoint is damaged, or that the build that
// wrote it is too old. Unimplemented means that a newer build wrote it. Any other error (ESTALE, EIO, no free
// descriptor, ...) is a failure to read, and the next try may find the checkpoint whole.
bool IsDamage(const absl::Status& error);

// The header of a checkpoint's file.
struct FileHeader {
  std::string text;  // its bytes
  SafetensorsHeader header;
};

// Checks the file's size as CheckSize does, and reads its header. Errors name the file.
absl::StatusOr<FileHeader> ReadFileHeader(platform::Files& files, const std::string& path,
                                          const ManifestFile& file);

// Checks that a file has not changed since its header was read: the header says where the arrays are. `part`
// has the bytes of the file from offset `place` on. Returns Unavailable if they differ from the header where
// the two overlap.
absl::Status CheckHeaderUnchanged(const FileHeader& header, const std::string& file, int64_t place,
                                  std::string_view part);

// Bytes of a checkpoint's file that have a digest in the manifest.
struct DigestedBytes {
  std::string file;    // its name
  std::string tensor;  // the tensor that the bytes belong to; empty: they are the whole file
  int64_t begin = 0;   // bytes from the file's beginning
  int64_t end = 0;
  std::string digest;  // XXH3-128
};

DigestedBytes AllOf(const ManifestFile& file);

// Reads DigestedBytes from beginning to end, a part at a time, and verifies their digest.
class VerifiedBytes {
 public:
  // `path` is the folder; `files` and `path` must outlive this object.
  VerifiedBytes(platform::Files& files, const std::string& path, DigestedBytes wanted)
      : files_(files), path_(path), wanted_(std::move(wanted)), read_(wanted_.begin) {}

  // Sets `part` to the next bytes, at most `most_bytes`. After the last part, returns InvalidArgument unless
  // the digest of all bytes is the manifest's. Returns Unavailable if the file cannot be read, or ends too
  // early. Requires !done().
  absl::Status Next(std::string& part, int64_t most_bytes = platform::kFilePartBytes);

  bool done() const { return done_; }

 private:
  platform::Files& files_;
  const std::string& path_;
  const DigestedBytes wanted_;
  int64_t read_;  // offset in the file up to which bytes were read
  platform::Xxh3 digest_;
  bool done_ = false;
};

}  // namespace tandem::checkpoint
