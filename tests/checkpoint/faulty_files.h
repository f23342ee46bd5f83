#pragma once

#include <string>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "platform/files.h"

namespace tandem::checkpoint::test {

// The machine's files, of which operation number `fail_at` (from 1; 0: none) and, where `for_good`, all
// later ones fail: an ENOSPC, or the process's death.
class FaultyFiles final : public platform::Files {
 public:
  FaultyFiles(int fail_at, bool for_good) : fail_at_(fail_at), for_good_(for_good) {}

  int operations() const {
    absl::MutexLock lock(&mu_);
    return operations_;
  }

  absl::StatusOr<std::string> Read(const std::string& path) override {
    if (Fails()) return Error(path);
    return real_.Read(path);
  }
  absl::Status Write(const std::string& path, std::string_view content) override {
    if (Fails()) {
      // Half of it got there.
      real_.Write(path, content.substr(0, content.size() / 2)).IgnoreError();
      return Error(path);
    }
    return real_.Write(path, content);
  }
  absl::Status SyncFolder(const std::string& path) override {
    return Fails() ? Error(path) : real_.SyncFolder(path);
  }
  absl::Status Rename(const std::string& from, const std::string& to) override {
    return Fails() ? Error(to) : real_.Rename(from, to);
  }
  absl::Status Publish(const std::string& from, const std::string& to) override {
    return Fails() ? Error(to) : real_.Publish(from, to);
  }
  absl::Status CreateFolders(const std::string& path) override {
    return Fails() ? Error(path) : real_.CreateFolders(path);
  }
  absl::StatusOr<std::vector<std::string>> List(const std::string& folder) override {
    if (Fails()) return Error(folder);
    return real_.List(folder);
  }
  absl::Status RemoveAll(const std::string& path) override {
    return Fails() ? Error(path) : real_.RemoveAll(path);
  }

 private:
  static absl::Status Error(const std::string& path) {
    return absl::ResourceExhaustedError("write " + path + ": No space left on device");
  }
  bool Fails() {
    absl::MutexLock lock(&mu_);
    ++operations_;
    return operations_ == fail_at_ || (for_good_ && fail_at_ > 0 && operations_ > fail_at_);
  }

  platform::Files& real_ = platform::SystemFiles();
  const int fail_at_;
  const bool for_good_;
  mutable absl::Mutex mu_;
  int operations_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace tandem::checkpoint::test
