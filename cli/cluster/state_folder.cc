// SPDX-License-Identifier: Apache-2.0
#include "cli/cluster/state_folder.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "cli/terminal/display_text.h"
#include "platform/files.h"
#include "platform/status_macros.h"
#include "platform/system_error.h"

namespace tandem::cli {
namespace {

namespace fs = std::filesystem;

constexpr char kLockFile[] = "lock";
constexpr char kSocketFile[] = "controller";

absl::Status Failed(int error, absl::string_view what) {
  return absl::FailedPreconditionError(platform::SystemError(error, what).message());
}

absl::Status MakeFolders(const std::string& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) {
    return absl::FailedPreconditionError(
        absl::StrCat("cannot create the folder ", Escape(folder), ": ", error.message(),
                     "; point XDG_STATE_HOME to a folder that you can write"));
  }
  return absl::OkStatus();
}

struct flock WholeFile() {
  struct flock lock = {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  return lock;
}

// Tests the lock without acquiring it, so that a `tandem up` that starts at this moment does not find it
// held.
bool IsLocked(const std::string& folder) {
  const absl::StatusOr<platform::Descriptor> file =
      platform::OpenRegularFile(absl::StrCat(folder, "/", kLockFile), O_RDWR);
  if (!file.ok()) {
    return false;
  }
  struct flock lock = WholeFile();
  return ::fcntl(file->get(), F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
}

// Whether a socket can be made in the folder, and gRPC's addresses can have its path.
bool MayHoldSocket(const std::string& folder) {
  const std::string path = absl::StrCat(folder, "/", kSocketFile);
  const bool is_plain = std::all_of(path.begin(), path.end(), [](char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c)) || absl::StrContains("/._-+@", c);
  });
  if (!is_plain || path.size() > kMaxSocketPath) {
    return false;
  }
  ::unlink(path.c_str());  // left by a process that was killed
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, kMaxSocketPath);
  const platform::Descriptor probe(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const bool bound = ::bind(probe.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0;
  ::unlink(path.c_str());
  return bound;
}

}  // namespace

absl::StatusOr<std::string> XdgFolder(const std::string& variable, const std::string& name,
                                      const std::string& home, const char* in_home, const char* use) {
  // The XDG rules: a path that is not absolute does not count.
  if (absl::StartsWith(variable, "/")) {
    return absl::StrCat(variable, "/tandem");
  }
  if (absl::StartsWith(home, "/")) {
    return absl::StrCat(home, in_home, "/tandem");
  }
  return absl::FailedPreconditionError(absl::StrCat("there is no folder for ", use, ": neither HOME nor ",
                                                    name, " is set to an absolute path; set one of them"));
}

absl::StatusOr<std::string> StateRoot(const Environment& environment) {
  return XdgFolder(environment.xdg_state_home, "XDG_STATE_HOME", environment.home, "/.local/state", "state");
}

std::string ExistingParent(const std::string& folder) {
  std::filesystem::path path = folder;
  std::error_code error;
  while (!std::filesystem::is_directory(path, error) && path.has_relative_path()) {
    path = path.parent_path();
  }
  return path.string();
}

std::string UpFolder(absl::string_view state_root) { return absl::StrCat(state_root, "/up"); }

std::optional<RunningUp> FindRunningUp(const std::string& up_folder) {
  if (!IsLocked(up_folder)) {
    return std::nullopt;
  }
  RunningUp up;
  const absl::StatusOr<std::string> text =
      platform::ReadAtMost(platform::SystemFiles(), absl::StrCat(up_folder, "/", kLockFile), 512);
  if (!text.ok()) {
    return std::nullopt;
  }
  const std::vector<std::string> lines = absl::StrSplit(*text, '\n');
  if (absl::SimpleAtoi(lines[0], &up.pid) && lines.size() > 1) {
    up.address = lines[1];
  }
  return up;
}

absl::StatusOr<FolderLock> FolderLock::Acquire(const std::string& folder) {
  TANDEM_RETURN_IF_ERROR(MakeFolders(folder));
  const std::string path = absl::StrCat(folder, "/", kLockFile);
  absl::StatusOr<platform::Descriptor> file = platform::OpenRegularFile(path, O_RDWR | O_CREAT, 0600);
  if (!file.ok()) {
    return absl::FailedPreconditionError(absl::StrCat("cannot ", file.status().message()));
  }
  struct flock whole = WholeFile();
  if (::fcntl(file->get(), F_OFD_SETLK, &whole) != 0) {
    const int error = errno;
    return error == EAGAIN || error == EACCES
               ? absl::AlreadyExistsError(
                     absl::StrCat("another process holds ", Escape(path),
                                  "; try again when it has ended, or point XDG_STATE_HOME to another folder"))
               : Failed(error, absl::StrCat("cannot lock ", Escape(path)));
  }
  if (::ftruncate(file->get(), 0) != 0) {
    return Failed(errno, absl::StrCat("cannot write ", Escape(path)));
  }
  return FolderLock(*std::move(file));
}

absl::Status FolderLock::Publish(absl::string_view address) {
  const std::string text = absl::StrCat(::getpid(), "\n", address, "\n");
  if (::pwrite(file_.get(), text.data(), text.size(), 0) != static_cast<ssize_t>(text.size())) {
    return Failed(errno, "cannot write the lock file");
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> MakeRunFolder(const std::string& state_root, absl::Time now,
                                          absl::string_view id) {
  const std::string runs = absl::StrCat(state_root, "/runs");
  // Names start with the UTC time, so their order is that of the runs.
  const std::string folder =
      absl::StrCat(runs, "/", absl::FormatTime("%Y%m%d-%H%M%S", now, absl::UTCTimeZone()), "-", id);
  TANDEM_RETURN_IF_ERROR(MakeFolders(folder));
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator it(runs, error), end; !error && it != end; it.increment(error)) {
    if (it->is_directory(error)) {
      names.push_back(it->path().string());
    }
  }
  std::sort(names.begin(), names.end());
  const size_t excess = names.size() > kKeptRuns ? names.size() - kKeptRuns : 0;
  for (size_t i = 0; i < excess; ++i) {
    if (names[i] != folder && !IsLocked(names[i])) {
      fs::remove_all(names[i], error);
    }
  }
  return folder;
}

absl::StatusOr<SocketFolder> SocketFolder::Make(const std::string& state_folder) {
  const std::string folder = absl::StrCat(state_folder, "/socket");
  if ((::mkdir(folder.c_str(), 0700) == 0 || errno == EEXIST) && ::chmod(folder.c_str(), 0700) == 0 &&
      MayHoldSocket(folder)) {
    return SocketFolder(folder);
  }
  ::rmdir(folder.c_str());
  std::string pattern = "/tmp/tandem-XXXXXX";
  if (::mkdtemp(pattern.data()) == nullptr) {  // of mode 0700
    return absl::FailedPreconditionError(absl::StrCat(
        "cannot create the socket's folder ", pattern, ": ", std::strerror(errno),
        "; point XDG_STATE_HOME to a folder on this machine whose path has at most ",
        kMaxSocketPath - std::string_view("/tandem/runs/20260101-000000-abcdef/socket/controller").size(),
        " bytes, or make room in /tmp"));
  }
  return SocketFolder(pattern);
}

SocketFolder::SocketFolder(SocketFolder&& other) noexcept : folder_(std::exchange(other.folder_, "")) {}

SocketFolder::~SocketFolder() {
  if (!folder_.empty()) {
    ::unlink(socket().c_str());
    ::rmdir(folder_.c_str());
  }
}

std::string SocketFolder::socket() const { return absl::StrCat(folder_, "/", kSocketFile); }
std::string SocketFolder::address() const { return absl::StrCat("unix:", socket()); }

}  // namespace tandem::cli
