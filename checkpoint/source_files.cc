// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/source_files.h"

#include <algorithm>
#include <array>
#include <map>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "checkpoint/hugging_face_folder.h"
#include "checkpoint/start_files.h"
#include "platform/status_macros.h"

namespace tandem::checkpoint {
namespace {

constexpr std::array<std::string_view, 7> kTokenizerNames = {
    "added_tokens.json",     "merges.txt", "special_tokens_map.json", "tokenizer.json", "tokenizer.model",
    "tokenizer_config.json", "vocab.json"};
constexpr std::string_view kGenerationConfigName = "generation_config.json";
constexpr int64_t kMostSourceBytes = int64_t{256} << 20;  // of one file; the largest tokenizers have 40 MB

bool IsOfTokenizer(std::string_view name) {
  return std::find(kTokenizerNames.begin(), kTokenizerNames.end(), name) != kTokenizerNames.end() ||
         name.starts_with("chat_template.");
}

bool IsTakenFrom(const SourceFolder& folder, std::string_view name) {
  return IsOfTokenizer(name) || (folder.of_text && name == kDatasetName) ||
         (folder.of_model && (name == kConfigName || name == kGenerationConfigName));
}

}  // namespace

absl::StatusOr<std::vector<SourceFile>> SourceFiles(platform::Files& files,
                                                    const std::vector<SourceFolder>& folders) {
  std::map<std::string, SourceFile> found;  // by the file's name
  for (const SourceFolder& folder : folders) {
    const absl::StatusOr<std::vector<std::string>> names = files.List(folder.path);
    if (!names.ok() && !absl::IsNotFound(names.status()) && !absl::IsPermissionDenied(names.status()) &&
        !absl::IsInvalidArgument(names.status())) {
      return names.status();
    }
    for (const std::string& name : names.ok() ? *names : std::vector<std::string>()) {
      if (IsTakenFrom(folder, name)) {
        found.emplace(
            name,
            SourceFile{.name = name, .path = absl::StrCat(folder.path, "/", name), .field = folder.field});
      }
    }
  }
  std::vector<SourceFile> all;
  for (auto& [name, file] : found) {
    all.push_back(std::move(file));
  }
  return all;
}

absl::StatusOr<std::vector<std::string>> ReplaceSource(platform::Files& files,
                                                       const std::vector<SourceFolder>& folders,
                                                       const std::string& directory) {
  const absl::StatusOr<std::vector<SourceFile>> found = SourceFiles(files, folders);
  std::vector<std::string> left_out;
  if (!found.ok()) {
    left_out.emplace_back(found.status().message());
  }
  const std::string next = absl::StrCat(directory, "/", kNextSourceName);
  TANDEM_RETURN_IF_ERROR(files.RemoveAll(next));
  TANDEM_RETURN_IF_ERROR(files.CreateFolder(next));
  bool holds_any = false;
  for (const SourceFile& file : found.ok() ? *found : std::vector<SourceFile>()) {
    const absl::StatusOr<std::string> content = platform::ReadAtMost(files, file.path, kMostSourceBytes);
    if (!content.ok()) {
      left_out.emplace_back(content.status().message());
      continue;
    }
    TANDEM_RETURN_IF_ERROR(files.Write(absl::StrCat(next, "/", file.name), *content));
    holds_any = true;
  }
  TANDEM_RETURN_IF_ERROR(files.SyncFolder(next));
  const std::string source = absl::StrCat(directory, "/", kSourceName);
  TANDEM_RETURN_IF_ERROR(files.RemoveAll(source));
  TANDEM_RETURN_IF_ERROR(holds_any ? files.Rename(next, source) : files.RemoveAll(next));
  TANDEM_RETURN_IF_ERROR(files.SyncFolder(directory));
  return left_out;
}

std::vector<std::string> TokenizerFiles(platform::Files& files, const std::string& folder) {
  const absl::StatusOr<std::vector<std::string>> names = files.List(folder);
  std::vector<std::string> found;
  for (const std::string& name : names.ok() ? *names : std::vector<std::string>()) {
    if (IsOfTokenizer(name)) {
      found.push_back(name);
    }
  }
  return found;
}

}  // namespace tandem::checkpoint
