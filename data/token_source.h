// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "data/text_format.h"

namespace tandem::data {

// The data cannot be used, which the user must mend. what() is one line with the field of the job, the path,
// and what to do.
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

// How text of bytes is divided into documents: each file is a document, or each part of a file that ends with
// the token end_of_document. This token is the last of its document.
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

// One text of one split of a job: the tokens of its files, one file after the other, divided into documents.
//
// Immutable, thread-safe. The files must not change while the source lives. All methods that read throw
// DataError if a file cannot be read, or has changed since the source was opened.
class TokenSource {
 public:
  virtual ~TokenSource() = default;

  virtual int64_t num_tokens() const = 0;

  // Copies the ids of tokens [begin, begin + count), which must exist, to `tokens`.
  virtual void Read(int64_t begin, int64_t count, int64_t* tokens) const = 0;

  // Starts reading from the disk what Read, DocumentStarts and Counted will read for these tokens, which must
  // exist. Does not wait, and ignores errors; the later calls will throw them.
  virtual void WillRead(int64_t begin, int64_t count) const = 0;

  // The positions in [begin, begin + count), ascending, at which a document begins. These tokens must exist.
  // A document begins at position 0.
  virtual std::vector<int64_t> DocumentStarts(int64_t begin, int64_t count) const = 0;

  // Whether some tokens may not count as targets.
  virtual bool has_masks() const { return false; }

  // Which of the tokens [begin, begin + count), which must exist, count as targets.
  virtual std::vector<bool> Counted(int64_t begin, int64_t count) const {
    (void)begin;
    return std::vector<bool>(count, true);
  }

  // The file of the token at `position`, which must exist, and its byte in the file.
  virtual Place Where(int64_t position) const = 0;

  // Describes the files for messages: "notes.txt", "its 12 files".
  virtual std::string Description() const = 0;

  // Covers the files' names and sizes and what is held out; hexadecimal. Checkpoints contain it, so it must
  // not change from version to version.
  virtual std::string digest() const = 0;

  // Covers what digest() covers, and how documents are found. For jobs that pack documents.
  virtual std::string documents_digest() const = 0;

  // A digest of samples of the files' contents (content_sample.h); hexadecimal.
  virtual std::string content_digest() const = 0;
};

}  // namespace tandem::data
