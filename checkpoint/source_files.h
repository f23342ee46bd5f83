// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "platform/files.h"

namespace tandem::checkpoint {

// `checkpoint.directory/source` (kSourceName of start_files.h): what goes with weights and is in no
// checkpoint, for `tandem export`: config.json, generation_config.json, the files of a tokenizer, and the
// dataset.json of the text.

inline constexpr char kDatasetName[] = "dataset.json";  // data/dataset.h

// A folder that such files are taken from; those of a tokenizer always.
struct SourceFolder {
  std::string path;
  std::string field;      // of the job, which leads there
  bool of_model = false;  // the weights' own: config.json and generation_config.json are taken
  bool of_text = false;   // dataset.json is taken
};

struct SourceFile {
  std::string name;  // in `source`
  std::string path;
  std::string field;  // of its folder
};

// What there is in the folders, sorted by name; of two of a name the first folder's. A folder that is not
// there, is none, or cannot be listed has no files.
absl::StatusOr<std::vector<SourceFile>> SourceFiles(platform::Files& files,
                                                    const std::vector<SourceFolder>& folders);

// Makes the folder `source` of `directory` hold these files alone; `folders` may have it among them. If there
// are none, it is removed. Rank 0 of the job that owns the directory calls it. Returns why files that cannot
// be read are left out, one line each. An error is of writing, and leaves the folder as it was or without it;
// the next call replaces it.
absl::StatusOr<std::vector<std::string>> ReplaceSource(platform::Files& files,
                                                       const std::vector<SourceFolder>& folders,
                                                       const std::string& directory);

// The names of the files of a tokenizer that `folder` has, sorted.
std::vector<std::string> TokenizerFiles(platform::Files& files, const std::string& folder);

}  // namespace tandem::checkpoint
