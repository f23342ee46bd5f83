// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "data/token_source.h"
#include "platform/clock.h"

namespace tandem::data {

struct SplitText {
  std::vector<std::shared_ptr<const TokenSource>> train;  // one for each training text, in order
  // One for each validation text of the options, in order. If there are none, the held-out part of each
  // training text, which has no tokens if nothing is held out.
  std::vector<std::shared_ptr<const TokenSource>> validation;
  std::string summary;  // one line for the user: what is trained on and what is held out
};

// Opens the texts of a job. Files of tokens (token_files.h) are read as tokens, all others as bytes. The
// texts of a job must all be files of tokens, or none; those that state their tokenizer must state the same
// one. Of each text of tokens, the last documents are held out (its end, if it is not divided into
// documents): about validation_fraction of its tokens, and at most kMostHeldOutWindows windows (held_out.h).
// corpus.h says what is held out from bytes. `clock` must outlive the result. Throws DataError.
SplitText OpenText(const TextOptions& options, const platform::Clock& clock);

}  // namespace tandem::data
