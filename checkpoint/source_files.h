// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "platform/files.h"

namespace tandem::checkpoint {

// `checkpoint.directory/source` (kSourceName of start_files.h): what goes with weights and is in no
// checkpoint, for `tandem export`: config.json, generation_config.json, the files of a tokenizer, and the
// dataset.json of the text.

inline constexpr char kDatasetName[] = "dataset.json";  // data/dataset.h

// Makes the folder `source` of `directory` hold what there is of these files in `folders`, of two that have a
// file the first's. Where there is none, or no folder, nothing is left there. Written by rank 0 of the job
// that owns the directory, at step 0. An error leaves an incomplete folder, which the next call replaces.
absl::Status ReplaceSource(platform::Files& files, const std::vector<std::string>& folders,
                           const std::string& directory);

// The names of the files of a tokenizer that `folder` has, sorted.
std::vector<std::string> TokenizerFiles(platform::Files& files, const std::string& folder);

}  // namespace tandem::checkpoint
