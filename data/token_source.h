// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "data/text_format.h"

namespace tandem::data {

// A user's error: the data cannot be used. what() is one line that names the field of the job, the path, and
// what to do.
class DataError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// A text as a job names it.
struct TextPath {
  std::string field;  // the job's field that has the path, for messages: "data.train"
  std::string path;
  TextFormat format = TextFormat::kAuto;
  std::optional<TokenType> token_type;  // of kFlat
};

// How byte-level text is divided into documents. Each file is a document or, if the token end_of_document
// occurs in it, each part that ends with this token; the token is the last of its document.
struct Documents {
  std::optional<int64_t> end_of_document;
};

// The texts that a job's spec names. Each path is a file, a folder (all regular files below it), or a glob.
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

// The text of one split of a job: a stream of tokens, made of its files one after the other, with documents
// in it. Each implementation says where the tokens come from, and what a document is.
//
// Immutable, thread-safe. The files must stay as they are while the source lives. All methods that read throw
// DataError if a file cannot be read, or has changed since the source was opened.
class TokenSource {
 public:
  virtual ~TokenSource() = default;

  virtual int64_t num_tokens() const = 0;

  // Copies tokens [begin, begin + count), which must exist, to `tokens`: ids from 0 on, as the files have
  // them.
  virtual void Read(int64_t begin, int64_t count, int64_t* tokens) const = 0;

  // Asks the disk for what Read, DocumentStarts and Counted will read for these tokens, which must exist. It
  // does not wait, and leaves errors to these calls.
  virtual void WillRead(int64_t begin, int64_t count) const = 0;

  // The positions in [begin, begin + count), ascending, at which a document begins. These tokens must exist.
  // A document begins at position 0.
  virtual std::vector<int64_t> DocumentStarts(int64_t begin, int64_t count) const = 0;

  // Whether some token does not count as a target.
  virtual bool has_masks() const { return false; }

  // Which of the tokens [begin, begin + count), which must exist, count as targets.
  virtual std::vector<bool> Counted(int64_t begin, int64_t count) const {
    (void)begin;
    return std::vector<bool>(count, true);
  }

  // The place in a file of the token at `position`, which must exist.
  virtual Place Where(int64_t position) const = 0;

  // Names the files for messages: "notes.txt", "its 12 files".
  virtual std::string Description() const = 0;

  // Identifies the text by the files' names and sizes and by what is held out; hexadecimal. Checkpoints
  // contain it, so it must not change from version to version.
  virtual std::string digest() const = 0;

  // Covers the same and where documents begin, for a job that packs documents.
  virtual std::string documents_digest() const = 0;

  // A digest of the files' contents as far as content_sample.h reads them; hexadecimal.
  virtual std::string content_digest() const = 0;
};

}  // namespace tandem::data
