// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "data/token_source.h"
#include "platform/clock.h"

namespace tandem::data {

struct SplitText {
  std::vector<std::shared_ptr<const TokenSource>> train;  // one for each text of the options, in their order
  // One for each validation text of the options, in their order. If they name none, one for each training
  // text, without tokens if nothing is held out.
  std::vector<std::shared_ptr<const TokenSource>> validation;
  std::string summary;  // one line for the user: what is trained on and what is held out
};

// Opens the texts of a job. Files of tokens (token_files.h) are read as tokens, all others as bytes. All
// texts of a job must be of one of these kinds, and files of tokens that name their tokenizer must all name
// the same. Of files of tokens the last documents are held out (if they have no documents, the end): about
// validation_fraction, and at most 2^20 windows. corpus.h says what is held out from bytes. `clock` must
// outlive the result. Throws DataError.
SplitText OpenText(const TextOptions& options, const platform::Clock& clock);

}  // namespace tandem::data
