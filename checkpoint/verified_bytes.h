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

// Bytes of a file of a checkpoint of which the manifest has a digest.
struct DigestedBytes {
  std::string file;    // its name
  std::string tensor;  // whose they are; empty: they are the whole file
  int64_t begin = 0;   // bytes from the file's beginning
  int64_t end = 0;
  std::string digest;  // XXH3-128
};

DigestedBytes AllOf(const ManifestFile& file);

// Such bytes, read from their beginning to their end, of which a part at a time is in memory.
class VerifiedBytes {
 public:
  // path: of the folder, which outlives it.
  VerifiedBytes(platform::Files& files, const std::string& path, DigestedBytes wanted)
      : files_(files),
        path_(path),
        wanted_(std::move(wanted)),
        read_(wanted_.begin),
        verified_(wanted_.begin) {}

  // Sets `part` to what follows, at most platform::kFilePartBytes. With the last one it is done:
  // InvalidArgument unless the digest of all is the manifest's. Unavailable where the file cannot be read, or
  // ends before the bytes do. Requires !done().
  absl::Status Next(std::string& part);

  bool done() const { return done_; }

  // The two halves of Next: one thread reads, and another one may verify what was read, in its order. Read
  // requires !read_all().
  absl::StatusOr<std::string> Read();
  bool read_all() const { return read_all_; }
  absl::Status Verify(const std::string& part);

 private:
  platform::Files& files_;
  const std::string& path_;
  const DigestedBytes wanted_;
  int64_t read_;  // up to which byte of the file
  bool read_all_ = false;
  platform::Xxh3 digest_;
  int64_t verified_;  // likewise
  bool done_ = false;
};

}  // namespace tandem::checkpoint
