// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "data/stored_tokens.h"
#include "data/text_options.h"

namespace tandem::data {

// What identifies a text. The digests are hexadecimal. Checkpoints contain them, so they must not change from
// version to version.
struct TextIdentity {
  std::string description;       // of the files, for messages: "notes.txt", "its 12 files"
  std::string digest;            // covers the files' names and sizes and what is held out
  std::string documents_digest;  // covers the same, and how documents are found
  std::string content_digest;    // covers samples of the files' contents (content_sample.h)
};

// One text of one split of a job: tokens [begin, end) of stored tokens, divided into documents. A document
// begins at position 0.
//
// Immutable, thread-safe. The files must not change while the source lives. All methods that read throw
// DataError if a file cannot be read, or has changed since it was opened. All tokens in a range that is
// passed by begin and count must exist.
class TokenSource {
 public:
  TokenSource(std::shared_ptr<const StoredTokens> tokens, int64_t begin, int64_t end, TextIdentity identity);

  const TextIdentity& identity() const { return identity_; }
  int64_t num_tokens() const { return end_ - begin_; }

  // Copies the ids of tokens [begin, begin + count) to `tokens`.
  void Read(int64_t begin, int64_t count, int64_t* tokens) const;

  // Starts reading from the disk what Read, DocumentStarts and Counted will read for these tokens. Does not
  // wait, and ignores errors: the later calls will meet them again and throw.
  void WillRead(int64_t begin, int64_t count) const;

  // The positions in [begin, begin + count), ascending, at which a document begins.
  std::vector<int64_t> DocumentStarts(int64_t begin, int64_t count) const;

  // Whether some tokens may not count as targets.
  bool has_masks() const { return tokens_->has_masks(); }

  // Which of the tokens [begin, begin + count) count as targets.
  std::vector<bool> Counted(int64_t begin, int64_t count) const;

  // The file of the token at `position`, and its byte in the file.
  Place Where(int64_t position) const { return tokens_->Where(begin_ + position); }

 private:
  // The position in tokens_ of `count` tokens from `begin` on, which must exist.
  int64_t Stored(int64_t begin, int64_t count) const;

  const std::shared_ptr<const StoredTokens> tokens_;
  const int64_t begin_;
  const int64_t end_;
  const TextIdentity identity_;
};

}  // namespace tandem::data
