// SPDX-License-Identifier: Apache-2.0
#include "jobspec/source_folders.h"

#include <filesystem>

#include "absl/strings/str_cat.h"
#include "checkpoint/folder.h"
#include "checkpoint/manifest.h"
#include "checkpoint/start_files.h"
#include "data/dataset_json.h"
#include "jobspec/start_weights.h"

namespace tandem::jobspec {
namespace {

// The folder that a prepared text's tokenizer was in; empty: it does not say so.
std::string TokenizerFolder(const std::string& prepared) {
  const absl::StatusOr<data::Dataset> dataset = data::ReadDataset(prepared);
  const std::filesystem::path path = dataset.ok() ? dataset->tokenizer_path : "";
  std::error_code error;
  return !path.is_absolute()                          ? ""
         : std::filesystem::is_directory(path, error) ? path.string()
                                                      : path.parent_path().string();
}

}  // namespace

std::vector<checkpoint::SourceFolder> SourceFolders(platform::Files& files,
                                                    const std::vector<DataText>& train,
                                                    const std::string& start_field,
                                                    const std::string& start) {
  std::vector<checkpoint::SourceFolder> folders;
  std::vector<checkpoint::SourceFolder> tokenizers;
  for (const DataText& text : train) {
    if (!data::IsDataset(text.path)) {
      continue;
    }
    if (folders.empty()) {
      folders.push_back({.path = text.path, .field = text.field, .of_text = true});
    }
    if (const std::string tokenizer = TokenizerFolder(text.path); !tokenizer.empty()) {
      tokenizers.push_back({.path = tokenizer, .field = text.field});
    }
  }
  if (!start.empty()) {  // a step of a checkpoint has it beside itself
    const bool is_step = IsCheckpointFolder(files, start);
    // Earlier builds copied the config.json that lay beside the tokenizer of random weights, too.
    const absl::StatusOr<checkpoint::Manifest> manifest =
        is_step ? checkpoint::ReadFolderManifest(files, start) : checkpoint::Manifest();
    folders.push_back({.path = is_step ? absl::StrCat(start, "/../", checkpoint::kSourceName) : start,
                       .field = start_field,
                       .of_model = !is_step || (manifest.ok() && manifest->info.origin.has_value()),
                       .of_text = true});
  }
  folders.insert(folders.end(), tokenizers.begin(), tokenizers.end());
  return folders;
}

}  // namespace tandem::jobspec
