// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "checkpoint/manifest.h"
#include "checkpoint/shard.h"
#include "platform/xxh3.h"

namespace tandem::checkpoint {

struct Shard;

// The file (safetensors) of what one rank owns, produced while it is written. Data on a GPU, or to be
// converted to another type, go through platform::kFilePartBytes of host memory at a time; other data are not
// copied.
class ShardsFile {
 public:
  // `shards` and their data outlive it. Returns InvalidArgument, with the array's name, for a shard that is
  // not a part of its array or has the name of another one. Empty shards are left out.
  static absl::StatusOr<ShardsFile> Make(const std::vector<Shard>& shards);

  // The next part of the file, which is valid until the next call; empty at its end. Throws DeviceError.
  std::string_view Next();

  // The size of all parts so far.
  int64_t bytes() const { return bytes_; }
  std::string digest() const { return digest_.Get(); }
  // By shard, the digest of the elements of weights and states, which an export reads without the rest of the
  // file; empty for moments and for empty shards. Available once the file is at its end.
  const std::vector<std::string>& shard_digests() const { return shard_digests_; }

 private:
  ShardsFile(const std::vector<Shard>& shards, std::string beginning);
  std::string_view NextOf(const Shard& shard);

  const std::vector<Shard>& shards_;
  std::string beginning_;
  bool begun_ = false;
  size_t shard_ = 0;     // the next part's
  int64_t element_ = 0;  // of it, the next
  std::string staging_;  // a part that is nowhere as it is in the file
  platform::Xxh3 digest_;
  platform::Xxh3 digest_of_shard_;  // of its parts so far
  std::vector<std::string> shard_digests_;
  int64_t bytes_ = 0;
};

// What each rank knows of a checkpoint that the ranks have written, and the manifest that rank 0 makes of it.

// The arrays in this rank's file, which is file 0. Throws CheckpointError for types that safetensors does not
// have.
std::vector<ManifestArray> ArraysOf(const std::vector<Shard>& shards);

// Adds files and arrays to `manifest`, which has none. `texts` is ContentsText of each rank's file, in the
// order of ranks. Returns InvalidArgument, naming the array, if two ranks disagree about an array, or if the
// ranks together do not cover it exactly once. Throws if a text was not made by ContentsText.
absl::Status Collect(const std::vector<std::string>& texts, Manifest& manifest);

}  // namespace tandem::checkpoint
