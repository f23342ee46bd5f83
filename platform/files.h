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

// How much of a large file its reader or writer has in memory at a time.
inline constexpr int64_t kFilePartBytes = int64_t{16} << 20;

// How much of a large file is written before it is synced: no call of its writer takes as long as a sync of
// all of it, and little of it is in the machine's cache.
inline constexpr int64_t kSyncBytes = int64_t{1} << 30;

// The folder itself, on this machine, whatever its path, for as long as it exists and its file system is
// mounted. Through another mount it is the same folder.
struct FolderId {
  dev_t device = 0;
  ino_t inode = 0;
  uint64_t mount = 0;  // the kernel's number of the mount that the path leads to; 0 if it does not say
  bool operator==(const FolderId& other) const { return device == other.device && inode == other.inode; }
};

// A file that is written at any places, each once. Not thread-safe. Its errors are those of Files::Write.
class OutputFile {
 public:
  virtual ~OutputFile() = default;  // closes it; what is not synced may be lost

  // Synced after every kSyncBytes or so, too.
  virtual absl::Status Write(int64_t begin, std::string_view content) = 0;

  // Makes it durable and closes it. The last call.
  virtual absl::Status Finish() = 0;
};

// The file operations whose failure the system must survive; tests inject ENOSPC and EIO here.
// Files are regular files: a FIFO, a device, a socket or a folder in place of one is an error that names it,
// and nothing waits for it. Errors name the operation and the path, with the codes of FileError
// (regular_file.h). Thread-safe.
class Files {
 public:
  virtual ~Files() = default;

  virtual absl::StatusOr<std::string> Read(const std::string& path) = 0;

  // At most `most_bytes` of it from byte `begin` on; fewer only if the file ends before. For a file that
  // need not fit in memory.
  virtual absl::StatusOr<std::string> ReadRange(const std::string& path, int64_t begin,
                                                int64_t most_bytes) = 0;

  // The size in bytes. For a file that may be larger than memory because it is not what it should be.
  virtual absl::StatusOr<int64_t> Size(const std::string& path) = 0;

  // Creates or truncates `path`, writes and fsyncs it. Not atomic; see Replace.
  virtual absl::Status Write(const std::string& path, std::string_view content) = 0;

  // The same of content that need not fit in memory: the parts that `next` returns, one behind the other,
  // until it returns an empty one, or an error, which this returns then. A part is used until the next call.
  // Synced after every kSyncBytes or so, too.
  virtual absl::Status WriteParts(const std::string& path,
                                  const std::function<absl::StatusOr<std::string_view>()>& next) = 0;

  // Creates or truncates `path` as a file of that many bytes, zeros until they are written. Where the file
  // system can, it takes the room for them at once.
  virtual absl::StatusOr<std::unique_ptr<OutputFile>> Create(const std::string& path, int64_t bytes) = 0;

  // Fsyncs the folder, so that names created or renamed in it are durable.
  virtual absl::Status SyncFolder(const std::string& path) = 0;

  // rename(2): replaces `to`.
  virtual absl::Status Rename(const std::string& from, const std::string& to) = 0;

  // Renames, on any file system: AlreadyExistsError if `to` is there (an empty folder may be replaced).
  virtual absl::Status Publish(const std::string& from, const std::string& to) = 0;

  // The folder and what is missing above it, durable: fsyncs the parent of each one that it makes.
  virtual absl::Status CreateFolders(const std::string& path) = 0;

  // Makes the folder; the one above must exist. Syncs neither. OK if it exists already.
  virtual absl::Status CreateFolder(const std::string& path) = 0;

  // InvalidArgument if `path` is not a folder.
  virtual absl::StatusOr<FolderId> IdOfFolder(const std::string& path) = 0;

  virtual absl::StatusOr<std::vector<std::string>> List(const std::string& folder) = 0;  // names, sorted
  virtual absl::Status RemoveAll(const std::string& path) = 0;  // OK if nothing is there

  // Sets the modification time to now, by the file system's clock. Needs no space.
  virtual absl::Status Touch(const std::string& path) = 0;

  // Reads it as the file system has it now, not as a cache of another machine's changes had it.
  virtual absl::StatusOr<absl::Time> ModificationTime(const std::string& path) = 0;
};

Files& SystemFiles();

// Reads a file of at most `most_bytes`. InvalidArgument, before any of it is read, if it has more: it
// may be anything, and need not fit in memory.
absl::StatusOr<std::string> ReadAtMost(Files& files, const std::string& path, int64_t most_bytes);

// Write to a temporary name beside `path`, fsync, rename, fsync the folder: after a crash
// `path` holds the old content or the new one.
absl::Status ReplaceFile(Files& files, const std::string& path, std::string_view content);

}  // namespace tandem::platform
