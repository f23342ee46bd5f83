// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "checkpoint/source_files.h"
#include "jobspec/data_texts.h"
#include "platform/files.h"

namespace tandem::jobspec {

// The folders from which the files of `checkpoint.directory/source` are copied (checkpoint/source_files.h),
// in the order of precedence: the first prepared training text, the folder of the initial weights, and the
// tokenizers of the texts. `train` has the job's training texts. `start` is the folder of the initial weights
// (a Hugging Face model, or one step of a checkpoint), or empty; `start_field` is the field that has this
// path. Reads dataset.json of the texts. A worker checks these files before a trainer copies them.
std::vector<checkpoint::SourceFolder> SourceFolders(platform::Files& files,
                                                    const std::vector<DataText>& train,
                                                    const std::string& start_field, const std::string& start);

}  // namespace tandem::jobspec
