// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "platform/files.h"

namespace tandem::checkpoint {

// The folder `checkpoint.directory/source` (kSourceName of start_files.h), for `tandem export`. It has files
// that an export needs besides the weights: config.json, generation_config.json, the files of a tokenizer,
// and the dataset.json of the text.

inline constexpr char kDatasetName[] = "dataset.json";  // of data/dataset_json.h

// A folder from which such files are copied. Tokenizer files are always copied.
struct SourceFolder {
  std::string path;
  std::string field;  // the job's field that has this path
  // Whether config.json and generation_config.json are copied, because the weights come from this folder.
  bool of_model = false;
  bool of_text = false;  // whether dataset.json is copied
};

struct SourceFile {
  std::string name;  // in the folder `source`
  std::string path;
  std::string field;  // SourceFolder::field
};

// Returns the files to copy, sorted by name. If two folders have a file of the same name, the first folder's
// is used. A path that does not exist, is not a folder, or may not be listed has no files; any other failure
// to list is returned.
absl::StatusOr<std::vector<SourceFile>> SourceFiles(platform::Files& files,
                                                    const std::vector<SourceFolder>& folders);

// Replaces the content of the folder `source` in `directory` by copies of SourceFiles(folders); `folders` may
// include that folder. Removes the folder if there are no files. Must be called by rank 0 of the job that
// owns the directory. Files that cannot be read, or are too large (256 MiB), are left out; returns one line
// for each, with the reason. An error means that writing failed: the folder is then unchanged, missing or
// already replaced. The next call replaces it.
absl::StatusOr<std::vector<std::string>> ReplaceSource(platform::Files& files,
                                                       const std::vector<SourceFolder>& folders,
                                                       const std::string& directory);

// The names of the tokenizer files in `folder`, sorted.
std::vector<std::string> TokenizerFiles(platform::Files& files, const std::string& folder);

}  // namespace tandem::checkpoint
