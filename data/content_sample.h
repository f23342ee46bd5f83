// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace tandem::data {

// Digests of files cover their size and a sample of their content: all of a small file, and a few blocks of a
// larger one, so that a job with terabytes of text starts as fast as one with little. Such a digest changes
// with every change of the file, unless the size stays and only bytes between two blocks change. Times of
// modification are not covered, because copies of a file differ in them.
//
// Checkpoints contain such digests. If the choice of blocks or the hash ever changes, the digest must get
// another name in checkpoints.

inline constexpr int64_t kSampledBlockBytes = 16 << 10;
inline constexpr int64_t kSampledBlocks = 4;

// How many files are opened and sampled at once; most of the time goes into waiting for the file system.
inline constexpr int kMostConcurrentFiles = 8;

// Bytes [begin, begin + size) of a file.
struct Block {
  int64_t begin = 0;
  int64_t size = 0;
  bool operator==(const Block&) const = default;
};

// The blocks of a file of `bytes` bytes that are sampled, in ascending order. A file that is not larger than
// all sampled blocks together is one block; a larger one has blocks at equal distances from its beginning to
// its end. An empty file has none.
std::vector<Block> SampledBlocks(int64_t bytes);

// Digests the sampled blocks of an open file of `bytes` bytes; hexadecimal. If a read fails, returns the
// error of the read, which names no path; OutOfRange if the file is shorter than `bytes`.
absl::StatusOr<std::string> ContentSample(int file, int64_t bytes);

}  // namespace tandem::data
