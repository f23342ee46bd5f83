// SPDX-License-Identifier: Apache-2.0
#include "data/content_sample.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "absl/status/status.h"
#include "platform/xxh3.h"

namespace tandem::data {

std::vector<Block> SampledBlocks(int64_t bytes) {
  if (bytes == 0) {
    return {};
  }
  if (bytes <= kSampledBlocks * kSampledBlockBytes) {
    return {{.begin = 0, .size = bytes}};
  }
  const int64_t last = bytes - kSampledBlockBytes;
  std::vector<Block> blocks;
  for (int64_t i = 0; i < kSampledBlocks - 1; ++i) {
    blocks.push_back({.begin = last / (kSampledBlocks - 1) * i, .size = kSampledBlockBytes});
  }
  blocks.push_back({.begin = last, .size = kSampledBlockBytes});
  return blocks;
}

absl::StatusOr<std::string> ContentSample(int file, int64_t bytes) {
  // Without this the kernel would read ahead of each block, and so much more than the blocks.
  posix_fadvise(file, 0, 0, POSIX_FADV_RANDOM);
  std::string sample;
  for (Block block : SampledBlocks(bytes)) {
    while (block.size > 0) {
      const size_t end = sample.size();
      sample.resize(end + static_cast<size_t>(block.size));
      const ssize_t got = pread(file, sample.data() + end, static_cast<size_t>(block.size), block.begin);
      const int error = errno;
      sample.resize(end + static_cast<size_t>(std::max<ssize_t>(got, 0)));
      if (got < 0 && error == EINTR) {
        continue;
      }
      if (got < 0) {
        return absl::ErrnoToStatus(error, "read");
      }
      if (got == 0) {
        return absl::OutOfRangeError("it has become shorter");
      }
      block.begin += got;
      block.size -= got;
    }
  }
  posix_fadvise(file, 0, 0, POSIX_FADV_NORMAL);
  return platform::Xxh3Of(sample);
}

}  // namespace tandem::data
