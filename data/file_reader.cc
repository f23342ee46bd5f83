// SPDX-License-Identifier: Apache-2.0
#include "data/file_reader.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "data/content_sample.h"
#include "data/text_options.h"
#include "platform/check.h"

namespace tandem::data {
namespace {

bool SameFile(const struct stat& one, const struct stat& two) {
  return one.st_size == two.st_size && one.st_mtim.tv_sec == two.st_mtim.tv_sec &&
         one.st_mtim.tv_nsec == two.st_mtim.tv_nsec;
}

}  // namespace

struct FileReader::File {
  std::string path;
  struct stat info = {};  // when it was added
  std::shared_ptr<const platform::Descriptor> opened;
  std::list<int>::iterator used;  // its place in used_, while it is open
  absl::Time checked;
};

FileReader::FileReader(std::string field, const platform::Clock& clock, size_t most_open)
    : field_(std::move(field)), clock_(clock), most_open_(most_open) {
  TANDEM_CHECK(most_open > 0, "a file can be open");
}

FileReader::~FileReader() = default;

int FileReader::Add(const std::string& path) {
  auto file = std::make_unique<File>();
  file->path = path;
  const platform::Descriptor opened = OpenFile(path);
  if (fstat(opened.get(), &file->info) != 0) {
    throw DataError(absl::StrCat(field_, ": cannot look at ", path, ": ", strerror(errno)));
  }
  const absl::MutexLock lock(&mu_);
  files_.push_back(std::move(file));
  return static_cast<int>(files_.size()) - 1;
}

int64_t FileReader::size(int file) const {
  const absl::MutexLock lock(&mu_);
  return files_.at(file)->info.st_size;
}

std::string FileReader::path(int file) const {
  const absl::MutexLock lock(&mu_);
  return files_.at(file)->path;
}

std::pair<uint64_t, uint64_t> FileReader::inode(int file) const {
  const absl::MutexLock lock(&mu_);
  const struct stat& info = files_.at(file)->info;
  return {info.st_dev, info.st_ino};
}

platform::Descriptor FileReader::OpenFile(const std::string& path) const {
  absl::StatusOr<platform::Descriptor> descriptor = platform::OpenRegularFile(path, O_RDONLY);
  if (!descriptor.ok()) {
    throw DataError(absl::StrCat(field_, ": cannot ", descriptor.status().message()));
  }
  return *std::move(descriptor);
}

std::shared_ptr<const platform::Descriptor> FileReader::Open(int number) const {
  const absl::Time now = clock_.Now();
  const absl::MutexLock lock(&mu_);
  File& file = *files_.at(number);
  bool check = now - file.checked >= kCheckEvery;
  if (file.opened != nullptr) {
    used_.splice(used_.begin(), used_, file.used);
  } else {
    if (used_.size() >= most_open_) {
      files_[used_.back()]->opened = nullptr;
      used_.pop_back();
    }
    file.opened = std::make_shared<const platform::Descriptor>(OpenFile(file.path));
    used_.push_front(number);
    file.used = used_.begin();
    check = true;
  }
  if (check) {
    struct stat info;
    if (fstat(file.opened->get(), &info) != 0) {
      throw DataError(absl::StrCat(field_, ": cannot look at ", file.path, ": ", strerror(errno)));
    }
    if (!SameFile(info, file.info)) {
      throw DataError(absl::StrCat(field_, ": ", file.path, " was changed while the job reads it: it had ",
                                   file.info.st_size, " bytes and now has ", info.st_size,
                                   "; train on a copy that stays as it is"));
    }
    file.checked = now;
  }
  return file.opened;
}

std::string FileReader::ContentSample(int file) const {
  const std::shared_ptr<const platform::Descriptor> opened = Open(file);
  const absl::StatusOr<std::string> sample = data::ContentSample(opened->get(), size(file));
  if (!sample.ok()) {
    throw DataError(absl::StrCat(field_, ": cannot read ", path(file), ": ", sample.status().message()));
  }
  return *sample;
}

void FileReader::Read(int file, int64_t begin, int64_t count, char* bytes) const {
  const std::shared_ptr<const platform::Descriptor> opened = Open(file);
  for (int64_t done = 0; done < count;) {
    const ssize_t got = pread(opened->get(), bytes + done, static_cast<size_t>(count - done), begin + done);
    if (got < 0 && errno == EINTR) {
      continue;
    }
    if (got < 0) {
      throw DataError(absl::StrCat(field_, ": cannot read ", path(file), " at byte ", begin + done, ": ",
                                   strerror(errno)));
    }
    if (got == 0) {
      struct stat now = {};
      fstat(opened->get(), &now);
      throw DataError(absl::StrCat(field_, ": ", path(file),
                                   " became shorter while the job reads it: there is nothing at byte ",
                                   begin + done, "; it had ", size(file), " bytes and now has ", now.st_size,
                                   "; train on a copy that stays as it is"));
    }
    done += got;
  }
}

void FileReader::WillRead(int file, int64_t begin, int64_t count) const {
  try {
    const std::shared_ptr<const platform::Descriptor> opened = Open(file);
    static_cast<void>(posix_fadvise(opened->get(), begin, count, POSIX_FADV_WILLNEED));  // a wish
  } catch (const DataError&) {
    // Read says so, if the job goes on that far.
  }
}

}  // namespace tandem::data
