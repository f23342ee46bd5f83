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
  std::map<std::string, SourceFile> found;  // by name
  for (const SourceFolder& folder : folders) {
    const absl::StatusOr<std::vector<std::string>> names = files.List(folder.path);
    if (!names.ok() && !absl::IsNotFound(names.status()) && !absl::IsPermissionDenied(names.status())) {
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

absl::Status ReplaceSource(platform::Files& files, const std::vector<SourceFolder>& folders,
                           const std::string& directory) {
  TANDEM_ASSIGN_OR_RETURN(const std::vector<SourceFile> found, SourceFiles(files, folders));
  std::vector<std::string> contents;
  for (const SourceFile& file : found) {
    TANDEM_ASSIGN_OR_RETURN(contents.emplace_back(),
                            platform::ReadAtMost(files, file.path, kMostSourceBytes));
  }
  const std::string source = absl::StrCat(directory, "/", kSourceName);
  TANDEM_RETURN_IF_ERROR(files.RemoveAll(source));
  if (found.empty()) {
    return absl::OkStatus();
  }
  TANDEM_RETURN_IF_ERROR(files.CreateFolder(source));
  for (size_t i = 0; i < found.size(); ++i) {
    TANDEM_RETURN_IF_ERROR(files.Write(absl::StrCat(source, "/", found[i].name), contents[i]));
  }
  TANDEM_RETURN_IF_ERROR(files.SyncFolder(source));
  return files.SyncFolder(directory);
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
