// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "checkpoint/source_files.h"
#include "jobspec/data_texts.h"
#include "platform/files.h"

namespace tandem::jobspec {

// The folders from which the files of `checkpoint.directory/source` come (checkpoint/source_files.h), the
// most important first: the prepared text, the folder that the weights come from, and the tokenizers of the
// texts. `train` has the job's training texts. `start` is the folder of the weights (a model's, or one step
// of a checkpoint) with the field that names it, or empty. Reads dataset.json of the texts. A worker checks
// these files before a trainer copies them.
std::vector<checkpoint::SourceFolder> SourceFolders(platform::Files& files,
                                                    const std::vector<DataText>& train,
                                                    const std::string& start_field, const std::string& start);

}  // namespace tandem::jobspec
