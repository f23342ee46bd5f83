// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "platform/files.h"
#include "platform/xxh3.h"

namespace tandem::checkpoint {

struct ManifestFile;

// Bytes of a checkpoint's file that have a digest in the manifest.
struct DigestedBytes {
  std::string file;    // its name
  std::string tensor;  // the tensor that they belong to; empty: they are the whole file
  int64_t begin = 0;   // bytes from the file's beginning
  int64_t end = 0;
  std::string digest;  // XXH3-128
};

DigestedBytes AllOf(const ManifestFile& file);

// Reads such bytes from beginning to end, a part at a time, and verifies them.
class VerifiedBytes {
 public:
  // `path` is the folder. It outlives this object.
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
