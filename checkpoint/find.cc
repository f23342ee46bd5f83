#include "checkpoint/find.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/manifest.h"

namespace tandem::checkpoint {

std::vector<std::string> NewestFirst(platform::Files& files, const std::string& directory) {
  const absl::StatusOr<std::vector<std::string>> names = files.List(directory);
  if (absl::IsNotFound(names.status())) {
    return {};
  }
  if (!names.ok()) {
    throw CheckpointError(absl::StrCat(directory, ": ", names.status().message()));
  }
  std::vector<std::pair<int64_t, std::string>> found;
  for (const std::string& name : *names) {
    absl::string_view number = name;
    int64_t step = 0;
    if (absl::ConsumePrefix(&number, "step-") && absl::SimpleAtoi(number, &step)) {
      found.emplace_back(step, absl::StrCat(directory, "/", name));
    }
  }
  std::sort(found.rbegin(), found.rend());
  std::vector<std::string> paths;
  for (auto& [step, path] : found) {
    paths.push_back(std::move(path));
  }
  return paths;
}

void Verify(platform::Files& files, const std::string& path) {
  for (const ManifestFile& file : ReadManifest(files, path).files) {
    ReadVerified(files, path, file);
  }
}

Found FindNewest(platform::Files& files, const std::string& directory,
                 const std::function<void(const std::string& path, const std::string& reason)>& skipped) {
  for (const std::string& path : NewestFirst(files, directory)) {
    try {
      Verify(files, path);
      return {.path = path, .info = ReadInfo(files, path)};
    } catch (const CheckpointError& error) {
      skipped(path, error.what());
    }
  }
  return {};
}

Info ReadInfo(platform::Files& files, const std::string& path) {
  const Manifest manifest = ReadManifest(files, path);
  for (const ManifestFile& file : manifest.files) {
    std::error_code error;
    const auto bytes = std::filesystem::file_size(absl::StrCat(path, "/", file.name), error);
    if (error || static_cast<int64_t>(bytes) != file.bytes) {
      throw CheckpointError(absl::StrCat(
          path, "/", file.name, ": ",
          error ? error.message() : absl::StrCat(bytes, " bytes, the manifest says ", file.bytes)));
    }
  }
  return manifest.info;
}

}  // namespace tandem::checkpoint
