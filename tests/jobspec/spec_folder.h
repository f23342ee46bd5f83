// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace tandem::jobspec {

// A folder of its own, gone with the object.
class SpecFolder {
 public:
  SpecFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "tandem_spec_XXXXXX").string();
    path_ = mkdtemp(pattern.data());
  }
  ~SpecFolder() { std::filesystem::remove_all(path_); }
  SpecFolder(const SpecFolder&) = delete;
  SpecFolder& operator=(const SpecFolder&) = delete;

  // Returns the file's path.
  std::string Write(const std::string& name, const std::string& text) const {
    const std::filesystem::path file = std::filesystem::path(path_) / name;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file, std::ios::binary) << text;
    return file.string();
  }

  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace tandem::jobspec
