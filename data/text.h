// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "data/byte_source.h"
#include "data/token_source.h"
#include "platform/clock.h"

namespace tandem::data {

// The texts of a job, as its spec names them.
struct TextOptions {
  std::vector<TextPath> train;         // one or more
  std::vector<TextPath> validation;    // none: a part of each training text
  double validation_fraction = 0;      // where `validation` is empty
  bool validates = true;               // on what is held out
  std::optional<Documents> documents;  // of a job that packs them
  int64_t sequence_length = 0;
};

struct SplitText {
  std::vector<std::shared_ptr<const TokenSource>> train;  // as the options name them
  // As the options name them; else as many as training texts, without a token where nothing is held out.
  std::vector<std::shared_ptr<const TokenSource>> validation;
  std::string summary;  // what is trained on and held out, in one line for the user
};

// Files of tokens (token_files.h) are read as such, anything else as bytes; all texts are the one or the
// other, and of one tokenizer as far as they say it. Of tokens the last documents are held out, about that
// share of them and at most 2^20 windows, or without documents the end; of byte-level text corpus.h says what
// is. clock outlives what is returned. Throws DataError.
SplitText OpenText(const TextOptions& options, const platform::Clock& clock);

}  // namespace tandem::data
