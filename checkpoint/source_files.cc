// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/source_files.h"

#include <algorithm>
#include <array>
#include <map>
#include <string_view>

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

}  // namespace

absl::Status ReplaceSource(platform::Files& files, const std::vector<std::string>& folders,
                           const std::string& directory) {
  const std::string source = absl::StrCat(directory, "/", kSourceName);
  TANDEM_RETURN_IF_ERROR(files.RemoveAll(source));
  std::map<std::string, std::string> from;  // name → folder
  for (const std::string& folder : folders) {
    const absl::StatusOr<std::vector<std::string>> names = files.List(folder);
    if (!names.ok() && !absl::IsNotFound(names.status())) {
      return names.status();
    }
    for (const std::string& name : names.ok() ? *names : std::vector<std::string>()) {
      if (name == kConfigName || name == kGenerationConfigName || name == kDatasetName ||
          IsOfTokenizer(name)) {
        from.emplace(name, folder);
      }
    }
  }
  if (from.empty()) {
    return absl::OkStatus();
  }
  TANDEM_RETURN_IF_ERROR(files.CreateFolder(source));
  for (const auto& [name, folder] : from) {
    TANDEM_ASSIGN_OR_RETURN(const std::string content,
                            platform::ReadAtMost(files, absl::StrCat(folder, "/", name), kMostSourceBytes));
    TANDEM_RETURN_IF_ERROR(files.Write(absl::StrCat(source, "/", name), content));
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
