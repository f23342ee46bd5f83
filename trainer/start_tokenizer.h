// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "jobspec/data_texts.h"
#include "platform/files.h"

namespace tandem::trainer {

// Says in one line for the user how the tokenizer with which a text was prepared differs from that of the
// Hugging Face model in `weights`. Empty if they agree, or if it cannot be known because the text is not
// prepared, or the model has no tokenizer.json and no eos_token_id.
std::string TokenizerDifference(platform::Files& files, const jobspec::DataText& text,
                                const std::string& weights);

}  // namespace tandem::trainer
