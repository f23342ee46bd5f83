// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "platform/files.h"

namespace tandem::platform {

// Forwards to the machine's files. A test overrides the operation that is to fail.
class ForwardingFiles : public Files {
 public:
  absl::StatusOr<std::string> Read(const std::string& path) override { return files_.Read(path); }
  absl::StatusOr<std::string> ReadRange(const std::string& path, int64_t begin, int64_t most_bytes) override {
    return files_.ReadRange(path, begin, most_bytes);
  }
  absl::StatusOr<int64_t> Size(const std::string& path) override { return files_.Size(path); }
  absl::Status Write(const std::string& path, std::string_view content) override {
    return files_.Write(path, content);
  }
  // Calls Write, so that a test need only override Write.
  absl::Status WriteParts(const std::string& path,
                          const std::function<absl::StatusOr<std::string_view>()>& next) override {
    std::string content;
    while (true) {
      const absl::StatusOr<std::string_view> part = next();
      if (!part.ok()) {
        return part.status();
      }
      if (part->empty()) {
        return Write(path, content);
      }
      content += *part;
    }
  }
  absl::StatusOr<std::unique_ptr<OutputFile>> Create(const std::string& path, int64_t bytes) override {
    return files_.Create(path, bytes);
  }
  absl::Status SyncFolder(const std::string& path) override { return files_.SyncFolder(path); }
  absl::Status Rename(const std::string& from, const std::string& to) override {
    return files_.Rename(from, to);
  }
  absl::Status Publish(const std::string& from, const std::string& to) override {
    return files_.Publish(from, to);
  }
  absl::Status CreateFolders(const std::string& path) override { return files_.CreateFolders(path); }
  absl::Status CreateFolder(const std::string& path) override { return files_.CreateFolder(path); }
  absl::StatusOr<FolderId> IdOfFolder(const std::string& path) override { return files_.IdOfFolder(path); }
  absl::StatusOr<std::vector<std::string>> List(const std::string& folder) override {
    return files_.List(folder);
  }
  absl::Status RemoveAll(const std::string& path) override { return files_.RemoveAll(path); }
  absl::Status Touch(const std::string& path) override { return files_.Touch(path); }
  absl::StatusOr<absl::Time> ModificationTime(const std::string& path) override {
    return files_.ModificationTime(path);
  }

 protected:
  Files& files_ = SystemFiles();
};

}  // namespace tandem::platform
