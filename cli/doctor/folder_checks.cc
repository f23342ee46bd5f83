// SPDX-License-Identifier: Apache-2.0
#include "cli/doctor/folder_checks.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/file.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <map>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "cli/terminal/display_text.h"
#include "cli/terminal/number_text.h"

namespace tandem::cli {
namespace {

using Level = Finding::Level;

constexpr int64_t kLeastFree = int64_t{1} << 30;
constexpr double kSlowSeconds = 0.5;  // for a commit of the controller's store
constexpr size_t kTrialBytes = 1 << 20;

// What the kernel calls the file system, where one machine alone has it.
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

// A file of its own in the folder, written and durable. Empty, or why not.
std::string Write(const std::string& path) {
  const int fd = ::open(path.c_str(), O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600);
  if (fd < 0) {
    return Why("cannot make a file");
  }
  const absl::Cleanup close = [fd] { ::close(fd); };
  const std::string bytes(kTrialBytes, 'x');
  if (::write(fd, bytes.data(), bytes.size()) != static_cast<ssize_t>(bytes.size())) {
    return Why("cannot write");
  }
  if (::fsync(fd) != 0) {
    return Why("cannot make a file durable (fsync)");
  }
  return ::flock(fd, LOCK_EX | LOCK_NB) == 0 ? "" : Why("cannot lock a file (flock)");
}

std::string Trial(const std::string& folder, const char* name) {
  return absl::StrCat(folder, "/.tandem-doctor-", ::getpid(), "-", name);
}

}  // namespace

std::vector<Finding> CheckDisk(const std::string& subject, const std::string& folder) {
  struct statvfs of = {};
  if (::statvfs(folder.c_str(), &of) != 0) {
    return {{Level::kFail, subject,
             absl::StrCat(Escape(folder), ": ", std::strerror(errno), "; make it, or name another")}};
  }
  const std::string path = Trial(folder, "a");
  const auto began = std::chrono::steady_clock::now();
  const std::string wrong = Write(path);
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;
  ::unlink(path.c_str());
  if (!wrong.empty()) {
    return {{Level::kFail, subject,
             absl::StrCat(Escape(folder), ": ", wrong, "; see its owner, its mount and its space")}};
  }
  const int64_t free = static_cast<int64_t>(of.f_bavail) * static_cast<int64_t>(of.f_frsize);
  const std::string facts = absl::StrCat(Escape(folder), ": ", BytesText(free), " free, 1 MiB durable in ",
                                         StepTimeText(took.count()));
  if (free < kLeastFree) {
    return {{Level::kWarn, subject, facts + "; make room: what cannot be stored is not taken"}};
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
  const std::string from = Trial(folder, "b");
  const std::string to = Trial(folder, "c");
  const absl::Cleanup remove = [&] {
    ::unlink(from.c_str());
    ::unlink(to.c_str());
  };
  const bool made = Write(from).empty() && Write(to).empty();
  if (!made || ::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_NOREPLACE) == 0 ||
      errno != EEXIST) {
    findings.push_back({Level::kFail, "shared folder",
                        absl::StrCat(Escape(folder), ": no rename that replaces nothing (RENAME_NOREPLACE), ",
                                     "by which checkpoints are published; choose another file system")});
  }
  return findings;
}

}  // namespace tandem::cli
