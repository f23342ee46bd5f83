// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "checkpoint/source_files.h"
#include "jobspec/data_texts.h"
#include "platform/files.h"

namespace tandem::jobspec {

// Where the files of `checkpoint.directory/source` come from (checkpoint/source_files.h), the first before
// the others: the text that is prepared, what the weights come from, and the tokenizers of the texts. train:
// the job's training texts. start: the folder of the weights, a model's or one step of a checkpoint, by the
// field that names it; empty: none. Reads dataset.json of the texts. A trainer copies these files, and a
// worker judges them before.
std::vector<checkpoint::SourceFolder> SourceFolders(platform::Files& files,
                                                    const std::vector<DataText>& train,
                                                    const std::string& start_field, const std::string& start);

}  // namespace tandem::jobspec
