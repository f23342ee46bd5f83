// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace tandem::data {

// What a digest sees of a file's content: all of a small file, and of a larger one a few blocks, so that a
// job with terabytes of text starts as fast as one with little. With the file's size, which a digest has
// beside it, it tells a file from the one before, unless both have the same size and differ only between two
// blocks. Times of modification are no part of it: copies of a file differ in them.
//
// Checkpoints have digests of it: with other blocks, or another hash, these must get another name there.

inline constexpr int64_t kSampledBlockBytes = 16 << 10;
inline constexpr int64_t kSampledBlocks = 4;

// How many files are opened and sampled at once: what takes time is to wait for a file system.
inline constexpr int kMostConcurrentFiles = 8;

// Bytes [begin, begin + size) of a file.
struct Block {
  int64_t begin = 0;
  int64_t size = 0;
  bool operator==(const Block&) const = default;
};

// Of a file of so many bytes, ascending: one of all where it has no more than the sampled blocks together,
// else these, at equal distances from its beginning to its end. An empty file has none.
std::vector<Block> SampledBlocks(int64_t bytes);

// Hexadecimal, of the sampled blocks of an open file of so many bytes. Where a read fails this is its error,
// which names no path; OutOfRange where the file is shorter.
absl::StatusOr<std::string> ContentSample(int file, int64_t bytes);

}  // namespace tandem::data
