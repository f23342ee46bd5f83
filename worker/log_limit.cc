// SPDX-License-Identifier: Apache-2.0
#include "worker/log_limit.h"

#include <fcntl.h>
#include <linux/falloc.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "platform/regular_file.h"
#include "platform/status_macros.h"

namespace tandem::worker {
namespace {

constexpr int64_t kMib = int64_t{1} << 20;
constexpr int64_t kMostOfOne = 64 * kMib;
constexpr int64_t kMostOfEnded = 4096 * kMib;
constexpr int64_t kBlock = int64_t{64} << 10;  // a multiple of the blocks of file systems
constexpr int64_t kBytesOfStatBlock = 512;

// What is kept where there are no holes: it is held in memory for a moment.
constexpr int64_t kMostKeptWithoutHoles = kMib;

absl::StatusOr<int64_t> Empty(int fd, int64_t size, int64_t keep) {
  std::string newest(static_cast<size_t>(std::min(keep, kMostKeptWithoutHoles)), '\0');
  const ssize_t got = pread(fd, newest.data(), newest.size(), size - static_cast<int64_t>(newest.size()));
  if (got < 0 || ftruncate(fd, 0) != 0) {
    return absl::ErrnoToStatus(errno, "cannot shorten");
  }
  newest.resize(static_cast<size_t>(got));
  if (write(fd, newest.data(), newest.size()) < 0) {
    return absl::ErrnoToStatus(errno, "cannot write the newest part again");
  }
  return size - got;
}

}  // namespace

int64_t MostLogBytes(int64_t disk_bytes, size_t num_slots) {
  return std::clamp(disk_bytes / 4 / static_cast<int64_t>(std::max<size_t>(1, num_slots)), kMib, kMostOfOne);
}

int64_t MostEndedLogBytes(int64_t disk_bytes) { return std::min(disk_bytes / 4, kMostOfEnded); }

absl::StatusOr<int64_t> DiskBytes(const std::string& folder) {
  struct statvfs info;
  if (statvfs(folder.c_str(), &info) != 0) {
    return absl::ErrnoToStatus(errno, absl::StrCat("look at the disk of ", folder));
  }
  return static_cast<int64_t>(info.f_blocks) * static_cast<int64_t>(info.f_frsize);
}

absl::StatusOr<int64_t> TrimLog(const std::string& path, int64_t most_bytes) {
  struct stat info;
  if (stat(path.c_str(), &info) != 0) {
    return errno == ENOENT ? absl::StatusOr<int64_t>(0)
                           : absl::ErrnoToStatus(errno, absl::StrCat("look at ", path));
  }
  const int64_t taken = info.st_blocks * kBytesOfStatBlock;
  if (taken <= most_bytes) {
    return 0;
  }
  TANDEM_ASSIGN_OR_RETURN(const platform::Descriptor file,
                          platform::OpenRegularFile(path, O_RDWR | O_APPEND));
  const int64_t keep = std::min<int64_t>(info.st_size, most_bytes / 2);
  const int64_t end = (info.st_size - keep) / kBlock * kBlock;
  if (end <= 0) {
    return 0;
  }
  if (fallocate(file.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, end) == 0) {
    struct stat after;
    const bool known = fstat(file.get(), &after) == 0;
    return known ? std::max<int64_t>(0, taken - after.st_blocks * kBytesOfStatBlock) : 0;
  }
  return Empty(file.get(), info.st_size, keep);
}

}  // namespace tandem::worker
