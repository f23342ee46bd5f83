// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "platform/xxh3.h"

namespace tandem::checkpoint {

struct Shard;

// The file of what one rank owns (safetensors), made while it is written: of what lies on a GPU, or is of
// another type there, platform::kFilePartBytes are in the host's memory at a time, and nothing of the rest.
class ShardsFile {
 public:
  // `shards` and their data outlive it. InvalidArgument, naming the array, for one that is not a
  // part of its array or has a name that another has. Empty shards are left out.
  static absl::StatusOr<ShardsFile> Make(const std::vector<Shard>& shards);

  // The next part of the file, which is valid until the next call; empty at its end. Throws DeviceError.
  std::string_view Next();

  // Of the parts so far.
  int64_t bytes() const { return bytes_; }
  std::string digest() const { return digest_.Get(); }
  // By shard, of the elements of weights and states, which an export reads without the rest of the file;
  // empty for moments and for empty shards. Once the file is at its end.
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

}  // namespace tandem::checkpoint
