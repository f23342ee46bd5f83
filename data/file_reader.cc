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

platform::Descriptor OpenFile(const std::string& field, const std::string& path) {
  absl::StatusOr<platform::Descriptor> descriptor = platform::OpenRegularFile(path, O_RDONLY);
  if (!descriptor.ok()) {
    throw DataError(absl::StrCat(field, ": cannot ", descriptor.status().message()));
  }
  return *std::move(descriptor);
}

struct stat InfoOf(const platform::Descriptor& opened, const std::string& field, const std::string& path) {
  struct stat info = {};
  if (fstat(opened.get(), &info) != 0) {
    throw DataError(absl::StrCat(field, ": cannot look at ", path, ": ", strerror(errno)));
  }
  return info;
}

}  // namespace

struct FileReader::File {
  std::string field;
  std::string path;
  struct stat info = {};  // when it was added
};

FileReader::FileReader(const platform::Clock& clock, size_t most_open)
    : clock_(clock), most_open_(most_open) {
  TANDEM_CHECK(most_open > 0, "a file can be open");
}

FileReader::~FileReader() = default;

int FileReader::Add(const std::string& field, const std::string& path) {
  const absl::Time now = clock_.Now();
  auto file = std::make_unique<File>(File{.field = field, .path = path});
  auto descriptor = std::make_shared<const platform::Descriptor>(OpenFile(field, path));
  file->info = InfoOf(*descriptor, field, path);
  int number = 0;
  {
    const absl::MutexLock lock(&mu_);
    number = static_cast<int>(files_.size());
    files_.push_back(std::move(file));
  }
  Keep(number, std::move(descriptor), now);
  return number;
}

const FileReader::File& FileReader::FileAt(int file) const {
  const absl::MutexLock lock(&mu_);
  return *files_.at(file);
}

int64_t FileReader::size(int file) const { return FileAt(file).info.st_size; }

std::string FileReader::path(int file) const { return FileAt(file).path; }

std::string FileReader::field(int file) const { return FileAt(file).field; }

std::pair<uint64_t, uint64_t> FileReader::inode(int file) const {
  const struct stat& info = FileAt(file).info;
  return {info.st_dev, info.st_ino};
}

FileReader::Shared FileReader::Open(int number) const {
  const absl::Time now = clock_.Now();
  const File* file = nullptr;
  Shared descriptor;
  {
    const absl::MutexLock lock(&mu_);
    file = files_.at(number).get();
    if (const auto kept = kept_.find(number); kept != kept_.end()) {
      used_.splice(used_.begin(), used_, kept->second.used);
      descriptor = kept->second.descriptor;
      if (now - kept->second.checked < kCheckEvery) {
        return descriptor;
      }
    }
  }
  if (descriptor == nullptr) {
    descriptor = std::make_shared<const platform::Descriptor>(OpenFile(file->field, file->path));
  }
  const struct stat info = InfoOf(*descriptor, file->field, file->path);
  if (!SameFile(info, file->info)) {
    throw DataError(absl::StrCat(
        file->field, ": ", file->path, " was changed while the job reads it: it had ", file->info.st_size,
        " bytes and now has ", info.st_size, "; train on a copy that stays as it is"));
  }
  Keep(number, descriptor, now);
  return descriptor;
}

void FileReader::Keep(int number, Shared descriptor, absl::Time checked) const {
  Shared closed;  // closed after the lock is released
  const absl::MutexLock lock(&mu_);
  if (const auto kept = kept_.find(number); kept != kept_.end()) {
    kept->second.checked = checked;
    return;
  }
  if (kept_.size() >= most_open_) {
    closed = std::move(kept_.extract(used_.back()).mapped().descriptor);
    used_.pop_back();
  }
  used_.push_front(number);
  kept_.emplace(number, Kept{.descriptor = std::move(descriptor), .checked = checked, .used = used_.begin()});
}

std::string FileReader::ContentSample(int file) const {
  const Shared opened = Open(file);
  const absl::StatusOr<std::string> sample = data::ContentSample(opened->get(), size(file));
  if (!sample.ok()) {
    throw DataError(absl::StrCat(field(file), ": cannot read ", path(file), ": ", sample.status().message()));
  }
  return *sample;
}

void FileReader::Read(int file, int64_t begin, int64_t count, char* bytes) const {
  const Shared opened = Open(file);
  for (int64_t done = 0; done < count;) {
    const ssize_t got = pread(opened->get(), bytes + done, static_cast<size_t>(count - done), begin + done);
    if (got < 0 && errno == EINTR) {
      continue;
    }
    if (got < 0) {
      const std::string why = strerror(errno);
      throw DataError(
          absl::StrCat(field(file), ": cannot read ", path(file), " at byte ", begin + done, ": ", why));
    }
    if (got == 0) {
      struct stat now = {};
      fstat(opened->get(), &now);
      throw DataError(absl::StrCat(field(file), ": ", path(file),
                                   " became shorter while the job reads it: there is nothing at byte ",
                                   begin + done, "; it had ", size(file), " bytes and now has ", now.st_size,
                                   "; train on a copy that stays as it is"));
    }
    done += got;
  }
}

void FileReader::WillRead(int file, int64_t begin, int64_t count) const {
  try {
    const Shared opened = Open(file);
    static_cast<void>(posix_fadvise(opened->get(), begin, count, POSIX_FADV_WILLNEED));  // a hint
  } catch (const DataError&) {
    // Read reports the error, if the job gets that far.
  }
}

}  // namespace tandem::data
