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
#include "tests/platform/forwarding_files.h"

namespace tandem::checkpoint {

// The machine's files, until the k-th changing operation. What happens then and after is the fault.
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
  absl::Status CreateFolders(const std::string& path) override {
    return Change("create folder " + path, [&] { return files_.CreateFolders(path); });
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

// The machine's files; something else happens to them just before the first write or publication to a path
// that ends with `where`.
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
