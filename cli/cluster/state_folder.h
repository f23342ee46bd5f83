// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "cli/terminal/environment.h"
#include "platform/regular_file.h"

namespace tandem::cli {

// Folders of `tandem up` and `tandem run`: $XDG_STATE_HOME/tandem/{up,runs/TIME-ID}, and the private folder
// of their socket. Errors are one line: what, where, what to do.

inline constexpr size_t kMaxSocketPath = 107;  // sockaddr_un
inline constexpr int kKeptRuns = 20;

// Returns `variable`/tandem if the value `variable` of an XDG variable is an absolute path, otherwise
// `home``in_home`/tandem. FailedPrecondition if `home` is no absolute path either; the message says that
// there is no folder for `use`, and has `name`, the name of the variable.
absl::StatusOr<std::string> XdgFolder(const std::string& variable, const std::string& name,
                                      const std::string& home, const char* in_home, const char* use);

// $XDG_STATE_HOME/tandem, or $HOME/.local/state/tandem.
absl::StatusOr<std::string> StateRoot(const Environment& environment);

// Returns `folder` if it exists, otherwise its nearest ancestor that does.
std::string ExistingParent(const std::string& folder);

// Returns the state folder of `tandem up`.
std::string UpFolder(absl::string_view state_root);

struct RunningUp {
  int pid = 0;
  std::string address;  // empty while it starts
};

// Returns the `tandem up` that holds the lock of `up_folder` now; nullopt if there is none.
std::optional<RunningUp> FindRunningUp(const std::string& up_folder);

// Holds the lock of a folder until destruction; the kernel releases it when the process dies.
class FolderLock {
 public:
  // Creates the folder if needed. AlreadyExists if another process holds the lock.
  static absl::StatusOr<FolderLock> Acquire(const std::string& folder);

  // Writes this process's id and `address` into the lock file, for FindRunningUp.
  absl::Status Publish(absl::string_view address);

 private:
  explicit FolderLock(platform::Descriptor file) : file_(std::move(file)) {}
  platform::Descriptor file_;
};

// Makes a folder for a new run. Of all folders of runs, keeps the newest kKeptRuns and removes the others,
// except those in use.
absl::StatusOr<std::string> MakeRunFolder(const std::string& state_root, absl::Time now,
                                          absl::string_view id);

// A folder of mode 0700 that holds one socket; destruction removes it. It is made in `state_folder`, which
// only this process uses, and not in $XDG_RUNTIME_DIR, which the last logout of the user removes. It is
// made in /tmp if `state_folder` cannot hold a socket: its path is too long or has odd characters, or its
// file system has no sockets.
class SocketFolder {
 public:
  static absl::StatusOr<SocketFolder> Make(const std::string& state_folder);
  SocketFolder(SocketFolder&& other) noexcept;
  SocketFolder& operator=(SocketFolder&&) = delete;
  ~SocketFolder();

  std::string socket() const;   // path
  std::string address() const;  // "unix:" path

 private:
  explicit SocketFolder(std::string folder) : folder_(std::move(folder)) {}
  std::string folder_;
};

}  // namespace tandem::cli
