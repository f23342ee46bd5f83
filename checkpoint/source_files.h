// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "platform/files.h"

namespace tandem::checkpoint {

// The folder `checkpoint.directory/source` (kSourceName of start_files.h), for `tandem export`. It has files
// that belong to weights but are in no checkpoint: config.json, generation_config.json, the files of a
// tokenizer, and the dataset.json of the text.

inline constexpr char kDatasetName[] = "dataset.json";  // of data/dataset.h

// A folder from which such files are taken. Tokenizer files are always taken.
struct SourceFolder {
  std::string path;
  std::string field;  // the job's field that names it
  // If it is the weights' own folder: config.json and generation_config.json are taken.
  bool of_model = false;
  bool of_text = false;  // dataset.json is taken
};

struct SourceFile {
  std::string name;  // its name in `source`
  std::string path;
  std::string field;  // the field of its folder
};

// The files in the folders, sorted by name. If two folders have the same name, the first wins. A path that
// does not exist, is not a folder, or cannot be listed has no files.
absl::StatusOr<std::vector<SourceFile>> SourceFiles(platform::Files& files,
                                                    const std::vector<SourceFolder>& folders);

// Replaces the content of the folder `source` in `directory` by these files; `folders` may include it. If
// there are no files, the folder is removed. Must be called by rank 0 of the job that owns the directory.
// Returns, one line each, why files that cannot be read are left out. An error means that writing failed; the
// folder is then as before or missing, and the next call replaces it.
absl::StatusOr<std::vector<std::string>> ReplaceSource(platform::Files& files,
                                                       const std::vector<SourceFolder>& folders,
                                                       const std::string& directory);

// The names of the tokenizer files in `folder`, sorted.
std::vector<std::string> TokenizerFiles(platform::Files& files, const std::string& folder);

}  // namespace tandem::checkpoint
