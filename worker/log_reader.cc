// SPDX-License-Identifier: Apache-2.0
#include "worker/log_reader.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <vector>

#include "absl/strings/str_cat.h"
#include "platform/status_macros.h"

namespace tandem::worker {
namespace {

absl::StatusOr<int64_t> SizeOf(int fd) {
  struct stat info;
  return fstat(fd, &info) == 0 ? absl::StatusOr<int64_t>(info.st_size)
                               : absl::ErrnoToStatus(errno, "look at a log");
}

// Returns where the first data at or after `offset` begin; `offset` itself at the end of the file, or if the
// file system does not know.
int64_t DataAfter(int fd, int64_t offset) {
  const off_t data = lseek(fd, offset, SEEK_DATA);
  return data < 0 ? offset : static_cast<int64_t>(data);
}

// Reads as many bytes as there are, at most `size`.
absl::StatusOr<size_t> ReadAt(int fd, char* data, size_t size, int64_t offset) {
  ssize_t got = 0;
  do {
    got = pread(fd, data, size, offset);
  } while (got < 0 && errno == EINTR);
  return got < 0 ? absl::StatusOr<size_t>(absl::ErrnoToStatus(errno, "read a log"))
                 : absl::StatusOr<size_t>(static_cast<size_t>(got));
}

// Returns where the last `lines` lines begin; 0 if the log, or the part of it that is left, has fewer.
absl::StatusOr<int64_t> TailOffset(int fd, int64_t lines) {
  if (lines <= 0) {
    return 0;
  }
  TANDEM_ASSIGN_OR_RETURN(const int64_t size, SizeOf(fd));
  const int64_t first = DataAfter(fd, 0);
  std::vector<char> buffer(1 << 16);
  int64_t newlines = 0;
  for (int64_t end = size; end > first;) {
    const int64_t begin = std::max(first, end - static_cast<int64_t>(buffer.size()));
    TANDEM_ASSIGN_OR_RETURN(const size_t got,
                            ReadAt(fd, buffer.data(), static_cast<size_t>(end - begin), begin));
    for (int64_t i = static_cast<int64_t>(got) - 1; i >= 0; --i) {
      // The newline at the very end ends the last line, and begins no other.
      if (buffer[static_cast<size_t>(i)] == '\n' && begin + i + 1 < size && ++newlines == lines) {
        return begin + i + 1;
      }
    }
    end = begin;
  }
  return 0;
}

}  // namespace

absl::StatusOr<LogReader> LogReader::Open(int fd, int64_t lines) {
  TANDEM_ASSIGN_OR_RETURN(const int64_t offset, TailOffset(fd, lines));
  return LogReader(fd, offset);
}

absl::StatusOr<int64_t> LogReader::Dropped() {
  TANDEM_ASSIGN_OR_RETURN(const int64_t size, SizeOf(fd_));
  if (offset_ > size) {  // the log was emptied, on a file system without holes
    const int64_t dropped = offset_ - size;
    offset_ = 0;
    return dropped;
  }
  const int64_t data = DataAfter(fd_, offset_);
  const int64_t dropped = data - offset_;
  offset_ = data;
  return dropped;
}

absl::Status LogReader::Read(size_t most, std::string& data) {
  while (true) {
    TANDEM_ASSIGN_OR_RETURN(const int64_t dropped, Dropped());
    if (dropped > 0) {
      in_dropped_line_ = true;
      data = absl::StrCat("tandem-worker: about ", std::max<int64_t>(1, dropped >> 10),
                          " KiB of this log were dropped here: of a rank that prints much the newest lines "
                          "are kept\n");
      return absl::OkStatus();
    }
    data.resize(most);
    TANDEM_ASSIGN_OR_RETURN(const size_t got, ReadAt(fd_, data.data(), most, offset_));
    data.resize(got);
    if (got > 0 && DataAfter(fd_, offset_) != offset_) {
      continue;  // dropped since DataAfter looked: the bytes are zeros
    }
    offset_ += static_cast<int64_t>(got);
    if (!in_dropped_line_ || got == 0) {
      return absl::OkStatus();
    }
    const size_t newline = data.find('\n');
    if (newline == std::string::npos) {
      continue;
    }
    in_dropped_line_ = false;
    data.erase(0, newline + 1);
    if (!data.empty()) {
      return absl::OkStatus();
    }
  }
}

}  // namespace tandem::worker
