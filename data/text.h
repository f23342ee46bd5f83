// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "data/byte_source.h"
#include "data/token_source.h"
#include "platform/clock.h"

namespace tandem::data {

// The text of a job, as its spec names it.
struct TextOptions {
  std::string train;
  std::string validation;              // empty: a part of the training text
  double validation_fraction = 0;      // where `validation` is empty
  std::optional<Documents> documents;  // of a job that packs them
  int64_t sequence_length = 0;
};

struct SplitText {
  std::shared_ptr<const TokenSource> train;
  std::shared_ptr<const TokenSource> validation;  // without a token where nothing is held out
  std::string summary;                            // what is trained on and held out, in one line for the user
};

// A prepared folder (dataset.h) is read as such, anything else as bytes; training and validation text are of
// one kind and of one tokenizer. Of a prepared folder its last documents are held out, about that share of
// its tokens and at most 2^20 windows; of byte-level text corpus.h says what is. clock outlives what is
// returned. Throws DataError.
SplitText OpenText(const TextOptions& options, const platform::Clock& clock);

}  // namespace tandem::data
