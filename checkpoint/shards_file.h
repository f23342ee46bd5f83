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

// Produces the safetensors file of one rank's shards, part by part, while it is written. Data on a GPU, or of
// another type than in the file, are copied to the host platform::kFilePartBytes at a time; other data are
// not copied.
class ShardsFile {
 public:
  // `shards` and their data must outlive this object. Returns InvalidArgument, with the array's name, if a
  // shard is not valid (IsPart) or two shards have the same TensorName. Leaves out empty shards.
  static absl::StatusOr<ShardsFile> Make(const std::vector<Shard>& shards);

  // Returns the next part of the file, valid until the next call, or an empty string at the end. Throws
  // DeviceError.
  std::string_view Next();

  // The size of all parts so far.
  int64_t bytes() const { return bytes_; }
  std::string digest() const { return digest_.Get(); }
  // By shard, the digest of its elements, with which an export verifies them without the rest of the file.
  // Empty for moments, which are not exported, and for empty shards. Valid once Next has reached the end.
  const std::vector<std::string>& shard_digests() const { return shard_digests_; }

 private:
  ShardsFile(const std::vector<Shard>& shards, std::string beginning);
  std::string_view NextOf(const Shard& shard);

  const std::vector<Shard>& shards_;
  std::string beginning_;
  bool begun_ = false;
  size_t shard_ = 0;     // shard of the next part
  int64_t element_ = 0;  // first element of the next part
  std::string staging_;  // the newest part, if it had to be copied or converted
  platform::Xxh3 digest_;
  platform::Xxh3 digest_of_shard_;  // of that shard's parts so far
  std::vector<std::string> shard_digests_;
  int64_t bytes_ = 0;
};

// How the manifest is made: each rank calls ArraysOf and sends the result to rank 0 (ContentsText), which
// calls Collect.

// Returns the arrays in this rank's file, which is file 0 of a manifest of its own. Throws CheckpointError
// for types that safetensors does not have.
std::vector<ManifestArray> ArraysOf(const std::vector<Shard>& shards);

// Adds the files and arrays of all ranks to `manifest`, which has neither. `texts` has each rank's
// ContentsText (manifest.h), in the order of ranks. Returns InvalidArgument, naming the array, if two ranks
// disagree about an array, or if the ranks together do not cover it exactly once. Throws if a text was not
// made by ContentsText.
absl::Status Collect(const std::vector<std::string>& texts, Manifest& manifest);

}  // namespace tandem::checkpoint
