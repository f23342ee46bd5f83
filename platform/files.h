// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace tandem::platform {

// How much of a large file a reader or writer holds in memory at a time.
inline constexpr int64_t kFilePartBytes = int64_t{16} << 20;

// A writer of a large file syncs it after this many bytes, so that no single call takes as long as a sync of
// the whole file, and little of the machine's cache holds unwritten data.
inline constexpr int64_t kSyncBytes = int64_t{1} << 30;

// Identifies a folder of this machine whatever its path, as long as the folder exists and its file system is
// mounted. Two ids of one folder are equal even if the paths lead through different mounts.
struct FolderId {
  dev_t device = 0;
  ino_t inode = 0;
  uint64_t mount = 0;  // the kernel's number of the mount that has the folder; 0: unknown
  bool operator==(const FolderId& other) const { return device == other.device && inode == other.inode; }
};

// A file whose parts are written in any order, each byte once. Not thread-safe. Its errors are those of
// Files::Write.
class OutputFile {
 public:
  virtual ~OutputFile() = default;  // closes the file; parts that are not synced may be lost

  // Writes at byte offset `begin`, and syncs the file after about every kSyncBytes.
  virtual absl::Status Write(int64_t begin, std::string_view content) = 0;

  // Makes the file durable and closes it. No call may follow.
  virtual absl::Status Finish() = 0;
};

// The file operations whose failure the system must survive; tests inject ENOSPC and EIO here. Methods on
// files need regular files: for a FIFO, a device, a socket or a folder they return an error that says what it
// is, and never wait for it. Errors name the operation and the path, with the codes of FileError
// (regular_file.h). Thread-safe.
class Files {
 public:
  virtual ~Files() = default;

  virtual absl::StatusOr<std::string> Read(const std::string& path) = 0;

  // Reads `most_bytes` from byte `begin` on, or fewer if the file ends before. For files that need not fit in
  // memory.
  virtual absl::StatusOr<std::string> ReadRange(const std::string& path, int64_t begin,
                                                int64_t most_bytes) = 0;

  // The size in bytes, so that a caller can refuse a file too large to be read.
  virtual absl::StatusOr<int64_t> Size(const std::string& path) = 0;

  // Creates or truncates `path`, writes and fsyncs it. Not atomic; see Replace.
  virtual absl::Status Write(const std::string& path, std::string_view content) = 0;

  // As Write, for content that need not fit in memory: appends the parts that `next` returns until it returns
  // an empty one. If `next` returns an error, WriteParts returns that error. A part must stay valid until the
  // next call of `next`. Also syncs the file after about every kSyncBytes.
  virtual absl::Status WriteParts(const std::string& path,
                                  const std::function<absl::StatusOr<std::string_view>()>& next) = 0;

  // Creates or truncates `path` as a file of `bytes` zeros, to be overwritten. Allocates its disk space at
  // once if the file system can.
  virtual absl::StatusOr<std::unique_ptr<OutputFile>> Create(const std::string& path, int64_t bytes) = 0;

  // Fsyncs the folder, so that names created or renamed in it are durable.
  virtual absl::Status SyncFolder(const std::string& path) = 0;

  // rename(2): replaces `to`.
  virtual absl::Status Rename(const std::string& from, const std::string& to) = 0;

  // Renames without replacing: AlreadyExistsError if `to` exists, except that an empty folder may be
  // replaced. Works on every file system.
  virtual absl::Status Publish(const std::string& from, const std::string& to) = 0;

  // Creates the folder and its missing ancestors durably: fsyncs the parent of each folder that it creates.
  virtual absl::Status CreateFolders(const std::string& path) = 0;

  // Creates a folder, whose parent must exist, without a sync. OK if the folder exists already.
  virtual absl::Status CreateFolder(const std::string& path) = 0;

  // InvalidArgument if `path` is not a folder.
  virtual absl::StatusOr<FolderId> IdOfFolder(const std::string& path) = 0;

  virtual absl::StatusOr<std::vector<std::string>> List(const std::string& folder) = 0;  // names, sorted
  virtual absl::Status RemoveAll(const std::string& path) = 0;  // OK if nothing is there

  // Sets the modification time to now, by the file system's clock. Needs no space.
  virtual absl::Status Touch(const std::string& path) = 0;

  // Reads the time from the file system itself, so that a change by another machine is seen at once (an NFS
  // client caches what stat(2) returns).
  virtual absl::StatusOr<absl::Time> ModificationTime(const std::string& path) = 0;
};

Files& SystemFiles();

// Reads a file. InvalidArgument, before any of it is read, if it has more than `most_bytes`: a user may have
// named any file, and a huge one would not fit in memory.
absl::StatusOr<std::string> ReadAtMost(Files& files, const std::string& path, int64_t most_bytes);

// Replaces the content of `path` atomically: writes a temporary file beside it, fsyncs that, renames it and
// fsyncs the folder. After a crash `path` holds either the old content or the new one.
absl::Status ReplaceFile(Files& files, const std::string& path, std::string_view content);

}  // namespace tandem::platform
