// SPDX-License-Identifier: Apache-2.0
#include "worker/log_limit.h"

#include <fcntl.h>
#include <linux/falloc.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "platform/log.h"
#include "platform/regular_file.h"
#include "platform/status_macros.h"

namespace tandem::worker {
namespace {

constexpr int64_t kMib = int64_t{1} << 20;
constexpr int64_t kMostOfOne = 64 * kMib;
constexpr int64_t kMostOfEnded = 4096 * kMib;
constexpr int64_t kBlock = int64_t{64} << 10;  // a multiple of the blocks of file systems
constexpr int64_t kBytesOfStatBlock = 512;

// How much is kept if the file system has no holes: it is copied through memory.
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

namespace fs = std::filesystem;

constexpr char kAttemptPrefix[] = "attempt-";

struct AttemptLogs {
  AttemptKey attempt;
  fs::file_time_type written = fs::file_time_type::min();
  int64_t bytes = 0;
};

// Logs that cannot be inspected count as old and empty.
AttemptLogs Look(const std::string& root, const AttemptKey& attempt) {
  AttemptLogs logs{.attempt = attempt};
  std::error_code error;
  for (const fs::directory_entry& file :
       fs::directory_iterator(absl::StrCat(root, "/", AttemptPath(attempt)), error)) {
    const fs::file_time_type written = file.last_write_time(error);
    if (!error) {
      logs.written = std::max(logs.written, written);
    }
    struct stat info;  // counts blocks of the disk, because a long log begins with a hole
    if (stat(file.path().c_str(), &info) == 0) {
      logs.bytes += std::min<int64_t>(info.st_size, int64_t{info.st_blocks} * kBytesOfStatBlock);
    }
  }
  return logs;
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

std::string AttemptPath(const AttemptKey& attempt) {
  return absl::StrCat(attempt.job, "/", kAttemptPrefix, attempt.attempt);
}

absl::StatusOr<std::set<AttemptKey>> ListAttempts(platform::Files& files, const std::string& root) {
  std::set<AttemptKey> attempts;
  const absl::StatusOr<std::vector<std::string>> jobs = files.List(root);
  if (absl::IsNotFound(jobs.status())) {
    return attempts;
  }
  TANDEM_RETURN_IF_ERROR(jobs.status());
  for (const std::string& job : *jobs) {
    TANDEM_ASSIGN_OR_RETURN(const std::vector<std::string> names, files.List(absl::StrCat(root, "/", job)));
    for (const std::string& name : names) {
      absl::string_view number = name;
      AttemptKey key{.job = job};
      if (absl::ConsumePrefix(&number, kAttemptPrefix) && absl::SimpleAtoi(number, &key.attempt)) {
        attempts.insert(key);
      }
    }
  }
  return attempts;
}

absl::Status RemoveAttempt(platform::Files& files, const std::string& root, const AttemptKey& attempt) {
  TANDEM_RETURN_IF_ERROR(files.RemoveAll(absl::StrCat(root, "/", AttemptPath(attempt))));
  const std::string job = absl::StrCat(root, "/", attempt.job);
  const absl::StatusOr<std::vector<std::string>> others = files.List(job);
  return others.ok() && others->empty() ? files.RemoveAll(job) : absl::OkStatus();
}

std::string LogLimits::ToText() const {
  return absl::StrCat("its newest ", attempts, " ended attempts, ", bytes >> 20, " MiB at most");
}

void PruneLogs(platform::Files& files, const std::string& root, const std::set<AttemptKey>& needed,
               const LogLimits& limits) {
  const absl::StatusOr<std::set<AttemptKey>> attempts = ListAttempts(files, root);
  std::vector<AttemptLogs> ended;
  if (attempts.ok()) {
    for (const AttemptKey& attempt : *attempts) {
      if (!needed.contains(attempt)) {
        ended.push_back(Look(root, attempt));
      }
    }
  }
  std::stable_sort(ended.begin(), ended.end(),
                   [](const AttemptLogs& a, const AttemptLogs& b) { return a.written > b.written; });
  absl::Status status = attempts.status();
  int64_t bytes = 0;
  for (size_t i = 0; i < ended.size(); ++i) {
    bytes += ended[i].bytes;
    if (i == 0 || (i < limits.attempts && bytes <= limits.bytes)) {
      continue;
    }
    if (const absl::Status removed = RemoveAttempt(files, root, ended[i].attempt); !removed.ok()) {
      status = removed;
    }
  }
  if (!status.ok()) {
    platform::Log(platform::LogLevel::kWarning, "old logs of ranks could not be removed",
                  {{"error", std::string(status.message())}});
  }
}

}  // namespace tandem::worker
