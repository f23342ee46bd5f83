// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "platform/files.h"
#include "platform/xxh3.h"

namespace tandem::checkpoint {

struct ManifestFile;

// One file of a checkpoint, read from its beginning to its end, of which a part at a time is in memory.
class VerifiedFile {
 public:
  // path: of the folder. All outlive it.
  VerifiedFile(platform::Files& files, const std::string& path, const ManifestFile& file)
      : files_(files), path_(path), file_(file) {}

  // Sets `part` to what follows, at most platform::kFilePartBytes. With the last one it is done:
  // InvalidArgument unless the digest of all is the manifest's. Unavailable where it cannot be read, or ends
  // before the size that the manifest says. Requires !done().
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
  const ManifestFile& file_;
  int64_t read_ = 0;
  bool read_all_ = false;
  platform::Xxh3 digest_;
  int64_t verified_ = 0;
  bool done_ = false;
};

}  // namespace tandem::checkpoint
