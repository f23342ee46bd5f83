// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <utility>

#include "tests/platform/forwarding_files.h"

namespace tandem::checkpoint {

// The machine's files. Counts the bytes that are read of each file, and how often its size is read.
class WatchedFiles final : public platform::ForwardingFiles {
 public:
  // `before_read` is called with the path before any of a file's content is read.
  explicit WatchedFiles(std::function<void(const std::string& path)> before_read = {})
      : before_read_(std::move(before_read)) {}

  absl::StatusOr<std::string> Read(const std::string& path) override {
    return Count(path, [&] { return ForwardingFiles::Read(path); });
  }
  absl::StatusOr<std::string> ReadRange(const std::string& path, int64_t begin, int64_t most_bytes) override {
    return Count(path, [&] { return ForwardingFiles::ReadRange(path, begin, most_bytes); });
  }
  absl::StatusOr<int64_t> Size(const std::string& path) override {
    {
      const std::lock_guard lock(mu_);
      opened_.insert(path);
      ++sized_[path];
    }
    return ForwardingFiles::Size(path);
  }

  std::set<std::string> opened() const {
    const std::lock_guard lock(mu_);
    return opened_;
  }
  // Number of reads of the size, by path.
  std::map<std::string, int> sized() const {
    const std::lock_guard lock(mu_);
    return sized_;
  }
  // Bytes of content that were read, by path.
  std::map<std::string, int64_t> read() const {
    const std::lock_guard lock(mu_);
    return read_;
  }

 private:
  template <typename Reading>
  absl::StatusOr<std::string> Count(const std::string& path, Reading reading) {
    if (before_read_) {
      before_read_(path);
    }
    absl::StatusOr<std::string> content = reading();
    const std::lock_guard lock(mu_);
    opened_.insert(path);
    read_[path] += content.ok() ? static_cast<int64_t>(content->size()) : 0;
    return content;
  }

  const std::function<void(const std::string&)> before_read_;
  mutable std::mutex mu_;
  std::set<std::string> opened_;
  std::map<std::string, int> sized_;
  std::map<std::string, int64_t> read_;
};

}  // namespace tandem::checkpoint
