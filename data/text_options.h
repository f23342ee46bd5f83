// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "data/text_format.h"

namespace tandem::data {

// The data cannot be used, and only the user can mend that. what() is one line with the field of the job, the
// path, and what to do.
class DataError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// A text as a job gives it.
struct TextPath {
  std::string field;  // the job's field that has the path, for messages: "data.train"
  std::string path;
  TextFormat format = TextFormat::kAuto;
  std::optional<TokenType> token_type;  // of kFlat
};

// How a text without an index of documents (HasIndex) is divided into documents: each file is a document, or
// each part of a file that ends with the token end_of_document, which belongs to the document.
struct Documents {
  std::optional<int64_t> end_of_document;
};

// The texts of a job. Each path is a file, a folder (all regular files below it), or a glob.
struct TextOptions {
  std::vector<TextPath> train;         // one or more
  std::vector<TextPath> validation;    // if empty, a part of each training text is held out
  double validation_fraction = 0;      // the part that is held out if `validation` is empty
  bool validates = true;               // whether the job validates on what is held out
  std::optional<Documents> documents;  // set if the job packs documents
  int64_t sequence_length = 0;
};

enum class Split : uint8_t { kTrain, kValidation };

// A byte of a file.
struct Place {
  std::string file;
  int64_t byte = 0;
  bool operator==(const Place&) const = default;
};

}  // namespace tandem::data
