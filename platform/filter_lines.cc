// SPDX-License-Identifier: Apache-2.0
#include "platform/filter_lines.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>

#include "platform/files.h"
#include "platform/regular_file.h"
#include "platform/status_macros.h"

namespace tandem::platform {
namespace {

constexpr size_t kPiece = 256 << 10;

// What has been kept of a file, on its way to the new one.
class Output {
 public:
  Output(int fd, const std::string& path) : fd_(fd), path_(path) {}

  absl::Status Add(std::string_view line) {
    pending_.append(line);
    pending_.push_back('\n');
    return pending_.size() < kPiece ? absl::OkStatus() : Flush();
  }

  absl::Status Flush() {
    std::string_view rest = pending_;
    while (!rest.empty()) {
      const ssize_t written = write(fd_, rest.data(), rest.size());
      if (written < 0 && errno != EINTR) {
        return FileError(errno, "write", path_);
      }
      rest.remove_prefix(written < 0 ? 0 : static_cast<size_t>(written));
    }
    pending_.clear();
    return absl::OkStatus();
  }

  absl::Status Sync() {
    TANDEM_RETURN_IF_ERROR(Flush());
    return fsync(fd_) == 0 ? absl::OkStatus() : FileError(errno, "fsync", path_);
  }

 private:
  const int fd_;
  const std::string& path_;
  std::string pending_;
};

// Calls `line` for every whole line of at most `most_bytes`.
absl::Status ForEachLine(int fd, const std::string& path, size_t most_bytes,
                         const std::function<absl::Status(std::string_view)>& line) {
  std::string piece(kPiece, '\0');
  std::string begun;      // of the current line
  bool too_long = false;  // the current line: its bytes are dropped
  while (true) {
    const ssize_t got = read(fd, piece.data(), piece.size());
    if (got < 0 && errno == EINTR) {
      continue;
    }
    if (got < 0) {
      return FileError(errno, "read", path);
    }
    if (got == 0) {
      return absl::OkStatus();
    }
    std::string_view rest(piece.data(), static_cast<size_t>(got));
    while (!rest.empty()) {
      const size_t end = rest.find('\n');
      const std::string_view part = rest.substr(0, end);
      too_long = too_long || begun.size() + part.size() > most_bytes;
      if (too_long) {
        begun.clear();
      } else {
        begun.append(part);
      }
      if (end == std::string_view::npos) {
        break;
      }
      if (!too_long) {
        TANDEM_RETURN_IF_ERROR(line(begun));
      }
      begun.clear();
      too_long = false;
      rest.remove_prefix(end + 1);
    }
  }
}

}  // namespace

absl::Status FilterLines(const std::string& path, size_t most_line_bytes,
                         const std::function<bool(std::string_view line)>& keep) {
  TANDEM_ASSIGN_OR_RETURN(const Descriptor from, OpenRegularFile(path, O_RDONLY));
  const std::string temporary = path + ".tmp";
  TANDEM_ASSIGN_OR_RETURN(const Descriptor to,
                          OpenRegularFile(temporary, O_WRONLY | O_CREAT | O_TRUNC, 0644));
  Output output(to.get(), temporary);
  absl::Status status = ForEachLine(from.get(), path, most_line_bytes, [&](std::string_view line) {
    return keep(line) ? output.Add(line) : absl::OkStatus();
  });
  if (status.ok()) {
    status = output.Sync();
  }
  if (status.ok()) {
    status = SystemFiles().Rename(temporary, path);
  }
  if (!status.ok()) {
    unlink(temporary.c_str());  // gives the space of a full disk back; the first error counts
    return status;
  }
  const std::string folder = std::filesystem::path(path).parent_path().string();
  return SystemFiles().SyncFolder(folder.empty() ? "." : folder);
}

}  // namespace tandem::platform
