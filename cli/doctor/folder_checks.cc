// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <linux/magic.h>
#include <sys/file.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <map>

#include "absl/strings/str_cat.h"
#include "cli/doctor/checks.h"
#include "cli/terminal/display_text.h"
#include "cli/terminal/number_text.h"
#include "platform/files.h"
#include "platform/regular_file.h"
#include "platform/system_error.h"

namespace tandem::cli {
namespace {

using Level = Finding::Level;

constexpr int64_t kLeastFree = int64_t{1} << 30;
constexpr double kSlowSeconds = 0.5;  // the controller's store would be slow
constexpr size_t kTrialBytes = 1 << 20;

// Returns the name of a file system that only one machine sees; empty for any other.
std::string LocalKind(const std::string& folder) {
  static const auto& kinds = *new std::map<long, std::string>{
      {EXT4_SUPER_MAGIC, "ext4"},
      {0x58465342, "xfs"},
      {TMPFS_MAGIC, "tmpfs"},
      {BTRFS_SUPER_MAGIC, "btrfs"},
      {OVERLAYFS_SUPER_MAGIC, "overlay"},
      {0x2fc12fc1, "zfs"},
      {RAMFS_MAGIC, "ramfs"},
  };
  struct statfs of = {};
  if (::statfs(folder.c_str(), &of) != 0) {
    return "";
  }
  const auto it = kinds.find(static_cast<long>(of.f_type));
  return it == kinds.end() ? "" : it->second;
}

std::string Why(const std::string& what) { return absl::StrCat(what, ": ", std::strerror(errno)); }

// Makes, writes and syncs a new file in the folder; destruction removes it.
class Trial {
 public:
  explicit Trial(const std::string& folder) : path_(folder + "/.tandem-doctor-XXXXXX") {
    const int fd = ::mkostemp(path_.data(), O_CLOEXEC);
    if (fd < 0) {
      wrong_ = Why("cannot make a file");
      path_.clear();
      return;
    }
    wrong_ = Write(fd);
    ::close(fd);
  }
  ~Trial() {
    if (!path_.empty()) {
      ::unlink(path_.c_str());
    }
  }
  Trial(const Trial&) = delete;
  Trial& operator=(const Trial&) = delete;

  const std::string& path() const { return path_; }
  const std::string& wrong() const { return wrong_; }  // empty: nothing

 private:
  static std::string Write(int fd);

  std::string path_;
  std::string wrong_;
};

std::string Trial::Write(int fd) {
  const std::string bytes(kTrialBytes, 'x');
  if (::write(fd, bytes.data(), bytes.size()) != static_cast<ssize_t>(bytes.size())) {
    return Why("cannot write");
  }
  if (::fsync(fd) != 0) {
    return Why("cannot make a file durable (fsync)");
  }
  return ::flock(fd, LOCK_EX | LOCK_NB) == 0 ? "" : Why("cannot lock a file (flock)");
}

// Syncs the names in a folder to disk; returns errno, or 0.
int SyncError(const std::string& folder) {
  const platform::Descriptor opened(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  return opened.get() >= 0 && ::fsync(opened.get()) == 0 ? 0 : errno;
}

}  // namespace

std::vector<Finding> CheckDisk(const std::string& subject, const std::string& folder) {
  struct statvfs of = {};
  if (::statvfs(folder.c_str(), &of) != 0) {
    return {{Level::kFail, subject,
             absl::StrCat(Escape(folder), ": ", std::strerror(errno), "; make it, or name another")}};
  }
  const auto began = std::chrono::steady_clock::now();
  const Trial trial(folder);
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;
  if (!trial.wrong().empty()) {
    return {{Level::kFail, subject,
             absl::StrCat(Escape(folder), ": ", trial.wrong(), "; see its owner, its mount and its space")}};
  }
  const int64_t free = static_cast<int64_t>(of.f_bavail) * static_cast<int64_t>(of.f_frsize);
  const std::string facts = absl::StrCat(Escape(folder), ": ", BytesText(free), " free, 1 MiB durable in ",
                                         StepTimeText(took.count()));
  if (free < kLeastFree) {
    return {
        {Level::kWarn, subject, facts + "; make room: jobs and checkpoints that do not fit are not stored"}};
  }
  return {
      {took.count() > kSlowSeconds ? Level::kWarn : Level::kOk, subject,
       took.count() > kSlowSeconds ? facts + "; so slow a disk delays every answer of a controller" : facts}};
}

std::vector<Finding> CheckShared(const std::string& folder) {
  std::vector<Finding> findings = CheckDisk("shared folder", folder);
  if (findings[0].level == Level::kFail) {
    return findings;
  }
  if (const std::string kind = LocalKind(folder); !kind.empty()) {
    findings.push_back(
        {Level::kWarn, "shared folder",
         absl::StrCat(
             Escape(folder), " is on ", kind,
             ", which other machines do not see; jobs on several machines need a shared file system")});
  }
  if (const int error = SyncError(folder); error != 0) {
    const bool refused = platform::MeansNotSupported(error);
    findings.push_back(
        {refused ? Level::kWarn : Level::kFail, "shared folder",
         absl::StrCat(Escape(folder), ": cannot make a folder durable (fsync): ", std::strerror(error),
                      refused
                          ? "; checkpoints are saved, and a power cut of the file server may lose the newest"
                          : "; no checkpoint could be saved there: see its mount")});
  }
  const Trial from(folder);
  const Trial to(folder);
  for (const Trial* trial : {&from, &to}) {
    if (!trial->wrong().empty()) {
      findings.push_back(
          {Level::kFail, "shared folder",
           absl::StrCat(Escape(folder), ": ", trial->wrong(), "; see its owner, its mount and its space")});
      return findings;
    }
  }
  // Checkpoints are published in this way.
  if (const absl::Status published = platform::SystemFiles().Publish(from.path(), to.path());
      !absl::IsAlreadyExists(published)) {
    findings.push_back(
        {Level::kFail, "shared folder",
         absl::StrCat(Escape(folder), published.ok() ? ": a rename replaced an existing file" : ": ",
                      Escape(std::string(published.message())),
                      "; checkpoints need a rename that never replaces a file: choose another file system")});
  }
  return findings;
}

}  // namespace tandem::cli
