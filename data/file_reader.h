// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "platform/clock.h"
#include "platform/regular_file.h"

namespace tandem::data {

// Reads parts of any number of files with a bounded number of open descriptors; the least recently used is
// closed first. All texts of a job share one reader, and so its bound. It uses pread(2) instead of mmap(2),
// so that a file that shrinks is an error and not a SIGBUS.
//
// A file must not change after it was added. Its size and time of modification are compared when it is opened
// again, and at most once in kCheckEvery while it is open.
//
// Thread-safe. A thread that opens, checks or closes a file lets the other threads read meanwhile.
class FileReader {
 public:
  static constexpr absl::Duration kCheckEvery = absl::Minutes(1);

  // `clock` must outlive the reader. `most_open` bounds the descriptors between calls; each call in progress
  // may have one more.
  explicit FileReader(const platform::Clock& clock, size_t most_open = 256);
  ~FileReader();
  FileReader(const FileReader&) = delete;
  FileReader& operator=(const FileReader&) = delete;

  // Opens a regular file and returns its number: 0, 1, ... The file stays open until others are used instead.
  // `field` is the job's field that names it, for messages. Throws DataError.
  int Add(const std::string& field, const std::string& path) ABSL_LOCKS_EXCLUDED(mu_);

  int64_t size(int file) const ABSL_LOCKS_EXCLUDED(mu_);  // in bytes, when the file was added
  std::string path(int file) const ABSL_LOCKS_EXCLUDED(mu_);
  std::pair<uint64_t, uint64_t> inode(int file) const ABSL_LOCKS_EXCLUDED(mu_);  // with its device
  std::string field(int file) const ABSL_LOCKS_EXCLUDED(mu_);

  // The file's content sample (content_sample.h). Throws DataError.
  std::string ContentSample(int file) const ABSL_LOCKS_EXCLUDED(mu_);

  // Reads bytes [begin, begin + count), which must be within the size. Throws DataError if they cannot be
  // read.
  void Read(int file, int64_t begin, int64_t count, char* bytes) const ABSL_LOCKS_EXCLUDED(mu_);

  // Starts reading from the disk what Read will need, and does not wait. Ignores errors: Read will meet them
  // again and throw.
  void WillRead(int file, int64_t begin, int64_t count) const ABSL_LOCKS_EXCLUDED(mu_);

 private:
  // What does not change after Add.
  struct File;
  // Is closed when its last user releases it.
  using Shared = std::shared_ptr<const platform::Descriptor>;
  struct Kept {
    Shared descriptor;
    absl::Time checked;
    std::list<int>::iterator used;  // its place in used_
  };

  const File& FileAt(int file) const ABSL_LOCKS_EXCLUDED(mu_);
  // Returns a descriptor of the file, which has not changed. Throws DataError.
  Shared Open(int file) const ABSL_LOCKS_EXCLUDED(mu_);
  // Keeps a descriptor of the file, unless it has one, as the one that was used last.
  void Keep(int file, Shared descriptor, absl::Time checked) const ABSL_LOCKS_EXCLUDED(mu_);

  const platform::Clock& clock_;
  const size_t most_open_;

  mutable absl::Mutex mu_;
  std::vector<std::unique_ptr<const File>> files_ ABSL_GUARDED_BY(mu_);
  mutable std::unordered_map<int, Kept> kept_ ABSL_GUARDED_BY(mu_);
  mutable std::list<int> used_ ABSL_GUARDED_BY(mu_);  // those of kept_, the latest used first
};

}  // namespace tandem::data
