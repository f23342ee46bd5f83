// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <functional>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "platform/files.h"
#include "platform/regular_file.h"
#include "tests/platform/forwarding_files.h"

namespace tandem::checkpoint {

// The machine's files, which fail from the k-th changing operation on, as `Fault` says.
class FaultyFiles final : public platform::ForwardingFiles {
 public:
  enum class Fault {
    kPowerCut,  // the k-th operation happens in part, nothing after it happens at all
    kFullDisk,  // from the k-th on, every Write leaves half of its content and fails; the rest works
    kOneError,  // the k-th operation fails, the others work
  };

  // k counts from 1.
  FaultyFiles(Fault fault, int k) : fault_(fault), k_(k) {}

  int operations() const {
    const std::lock_guard lock(mu_);
    return operations_;
  }

  absl::Status Write(const std::string& path, std::string_view content) override {
    const int order = Count();
    if (order < 0) {
      return files_.Write(path, content);
    }
    if (order == 0 || fault_ == Fault::kFullDisk) {
      files_.Write(path, content.substr(0, content.size() / 2)).IgnoreError();
    }
    if (fault_ == Fault::kOneError && order > 0) {
      return files_.Write(path, content);
    }
    return absl::ResourceExhaustedError("write " + path + ": No space left on device");
  }
  absl::Status SyncFolder(const std::string& path) override {
    return Change("fsync folder " + path, [&] { return files_.SyncFolder(path); });
  }
  absl::Status Rename(const std::string& from, const std::string& to) override {
    return Change("rename " + from, [&] { return files_.Rename(from, to); });
  }
  absl::Status Publish(const std::string& from, const std::string& to) override {
    return Change("publish " + from, [&] { return files_.Publish(from, to); });
  }
  absl::Status CreateFolder(const std::string& path) override {
    return Change("create folder " + path, [&] { return files_.CreateFolder(path); });
  }
  absl::Status RemoveAll(const std::string& path) override {
    const int order = Count();
    if (order < 0 || (fault_ == Fault::kFullDisk) || (fault_ == Fault::kOneError && order > 0)) {
      return files_.RemoveAll(path);
    }
    if (order == 0 && std::filesystem::is_directory(path)) {
      const auto names = files_.List(path);
      if (names.ok() && !names->empty()) {
        files_.RemoveAll(path + "/" + names->front()).IgnoreError();
      }
    }
    return absl::UnavailableError("remove " + path + ": Input/output error");
  }

 private:
  // Negative: before the fault; 0: the k-th operation; positive: after it.
  int Count() {
    const std::lock_guard lock(mu_);
    return ++operations_ - k_;
  }

  template <typename Operation>
  absl::Status Change(const std::string& what, Operation operation) {
    const int order = Count();
    if (order < 0 || fault_ == Fault::kFullDisk || (fault_ == Fault::kOneError && order > 0)) {
      return operation();
    }
    return absl::UnavailableError(what + ": Input/output error");
  }

  const Fault fault_;
  const int k_;
  mutable std::mutex mu_;
  int operations_ = 0;
};

// The machine's files, except for the operations that a test sets.
struct ReplacedFiles final : platform::ForwardingFiles {
  std::function<absl::StatusOr<std::string>(const std::string& path)> read;
  std::function<absl::StatusOr<std::string>(const std::string& path, int64_t begin, int64_t most_bytes)>
      read_range;
  std::function<absl::StatusOr<int64_t>(const std::string& path)> size;
  std::function<absl::StatusOr<std::vector<std::string>>(const std::string& folder)> list;
  std::function<absl::StatusOr<platform::FolderId>(const std::string& path)> id_of_folder;
  std::function<absl::Status(const std::string& from, const std::string& to)> rename;
  std::function<absl::Status(const std::string& path)> remove_all;
  std::function<absl::Status(const std::string& path)> sync_folder;

  absl::StatusOr<std::string> Read(const std::string& path) override {
    return read ? read(path) : ForwardingFiles::Read(path);
  }
  absl::StatusOr<std::string> ReadRange(const std::string& path, int64_t begin, int64_t most_bytes) override {
    return read_range ? read_range(path, begin, most_bytes)
                      : ForwardingFiles::ReadRange(path, begin, most_bytes);
  }
  absl::StatusOr<int64_t> Size(const std::string& path) override {
    return size ? size(path) : ForwardingFiles::Size(path);
  }
  absl::StatusOr<std::vector<std::string>> List(const std::string& folder) override {
    return list ? list(folder) : ForwardingFiles::List(folder);
  }
  absl::StatusOr<platform::FolderId> IdOfFolder(const std::string& path) override {
    return id_of_folder ? id_of_folder(path) : ForwardingFiles::IdOfFolder(path);
  }
  absl::Status Rename(const std::string& from, const std::string& to) override {
    return rename ? rename(from, to) : ForwardingFiles::Rename(from, to);
  }
  absl::Status RemoveAll(const std::string& path) override {
    return remove_all ? remove_all(path) : ForwardingFiles::RemoveAll(path);
  }
  absl::Status SyncFolder(const std::string& path) override {
    return sync_folder ? sync_folder(path) : ForwardingFiles::SyncFolder(path);
  }
};

// The machine's files. Paths that contain `stuck` cannot be removed, like a file that is open elsewhere on
// NFS.
class StuckFiles final : public platform::ForwardingFiles {
 public:
  explicit StuckFiles(std::string stuck, bool may_rename = true)
      : stuck_(std::move(stuck)), may_rename_(may_rename) {}
  absl::Status RemoveAll(const std::string& path) override {
    if (path.find(stuck_) != std::string::npos) {
      return absl::UnavailableError("remove " + path + ": Device or resource busy");
    }
    return ForwardingFiles::RemoveAll(path);
  }
  absl::Status Rename(const std::string& from, const std::string& to) override {
    if (!may_rename_ && from.find(stuck_) != std::string::npos) {
      return absl::PermissionDeniedError("rename " + from + ": Operation not permitted");
    }
    return ForwardingFiles::Rename(from, to);
  }

 private:
  const std::string stuck_;
  const bool may_rename_;
};

// The machine's files. Opening a file whose path ends with `which` for reading fails with `error`.
class UnreadableFiles final : public platform::ForwardingFiles {
 public:
  UnreadableFiles(std::string which, int error) : which_(std::move(which)), error_(error) {}
  absl::StatusOr<std::string> Read(const std::string& path) override {
    return path.ends_with(which_) ? Error(path) : ForwardingFiles::Read(path);
  }
  absl::StatusOr<std::string> ReadRange(const std::string& path, int64_t begin, int64_t most_bytes) override {
    return path.ends_with(which_) ? Error(path) : ForwardingFiles::ReadRange(path, begin, most_bytes);
  }
  absl::StatusOr<int64_t> Size(const std::string& path) override {
    if (path.ends_with(which_)) {
      return Error(path).status();
    }
    return ForwardingFiles::Size(path);
  }

 private:
  absl::StatusOr<std::string> Error(const std::string& path) const {
    return platform::FileError(error_, "open", path);
  }

  const std::string which_;
  const int error_;
};

// The machine's files. Calls a function just before the first write or publication to a path that ends with
// `where`.
class RacingFiles final : public platform::ForwardingFiles {
 public:
  RacingFiles(std::string where, std::function<void()> race)
      : where_(std::move(where)), race_(std::move(race)) {}

  absl::Status Write(const std::string& path, std::string_view content) override {
    Race(path);
    return ForwardingFiles::Write(path, content);
  }
  absl::Status Publish(const std::string& from, const std::string& to) override {
    Race(to);
    return ForwardingFiles::Publish(from, to);
  }

 private:
  void Race(const std::string& path) {
    if (path.ends_with(where_) && race_) {
      std::exchange(race_, nullptr)();
    }
  }

  const std::string where_;
  std::function<void()> race_;
};

}  // namespace tandem::checkpoint
