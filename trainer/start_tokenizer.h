// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "jobspec/data_texts.h"
#include "platform/files.h"

namespace tandem::trainer {

// In what the tokenizer that a prepared text was made with is not that of the Hugging Face model in
// `weights`, in one line for the user; empty where they agree, or it cannot be known: the text is not
// prepared, or the model has no tokenizer.json and no eos_token_id.
std::string TokenizerDifference(platform::Files& files, const jobspec::DataText& text,
                                const std::string& weights);

}  // namespace tandem::trainer
