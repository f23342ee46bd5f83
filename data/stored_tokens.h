// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "data/file_reader.h"
#include "data/indexed_file.h"
#include "data/text_options.h"
#include "data/token_files.h"

namespace tandem::data {

// A text that is stored as files of tokens (token_files.h), mostly a folder that `tandem data prepare` made.
// The constructor reads the headers and content samples of all files, and compares their sizes with their
// headers or dataset.json. Tokens and indices are read when they are needed, and not kept in memory.
// Thread-safe.
class StoredTokens {
 public:
  // Identifies a file of tokens whatever its name is.
  struct FileIdentity {
    uint64_t device = 0;
    uint64_t inode = 0;
    std::string content;  // number and type of its tokens, and a sample of its bytes (content_sample.h)
  };

  // Adds the text's files to `files`. `end_of_document` is the last token of each document in files without
  // an index; if it is unset, each such file is a document. Throws DataError.
  StoredTokens(const TextPath& text, std::shared_ptr<FileReader> files,
               std::optional<int64_t> end_of_document = std::nullopt);

  // The bytes of parts of files (corpus.h) as tokens, one part after the other. Each part begins a document.
  // `files` must have opened the files. A text of this constructor has neither digests nor files().
  struct FilePart {
    int file = 0;  // number in the reader
    int64_t begin = 0;
    int64_t bytes = 0;
  };
  StoredTokens(std::shared_ptr<FileReader> files, const std::vector<FilePart>& parts,
               std::optional<int64_t> end_of_document);

  const TokenText& text() const { return text_; }
  const std::string& folder() const { return folder_; }

  // The job's field that has the path of the text.
  const std::string& field() const { return field_; }

  // In the order of text().files.
  const std::vector<FileIdentity>& files() const { return identities_; }

  // These do what the methods of TokenSource of the same names do, for the whole text. They throw DataError.
  void Read(int64_t begin, int64_t count, int64_t* tokens) const;
  void WillRead(int64_t begin, int64_t count) const;
  std::vector<int64_t> DocumentStarts(int64_t begin, int64_t count) const;
  Place Where(int64_t position) const;
  bool has_masks() const;
  std::vector<bool> Counted(int64_t begin, int64_t count) const;

  // Checks the indices that `tandem data prepare` did not make, by reading all of them. Throws DataError if a
  // sequence does not begin at the end of the previous one.
  void CheckIndices() const;

  // A cheaper check than CheckIndices, of the held-out end that begins at `position`. Throws DataError if a
  // sequence in this end begins before the previous one.
  void CheckStartsFrom(int64_t position) const;

  // The first position >= `position` at which a document begins; the number of all tokens if there is none.
  // Returns `position` if its file is not divided into documents: has no index, and end_of_document is unset.
  int64_t DocumentFrom(int64_t position) const;

  // Digests of dataset.json's names, sizes and tokenizer, and of the files' contents (content_sample.h);
  // hexadecimal.
  const std::string& digest() const { return digest_; }
  const std::string& content_digest() const { return content_digest_; }

 private:
  struct Shard {
    int bin = 0;   // file number in the reader
    int idx = 0;   // file number; -1: none
    int mask = 0;  // file number; -1: none
    IndexHeader header;
    int64_t begin = 0;  // position of its first token
    TokenFile file;
  };

  void Open(Shard& shard) const;
  void OpenIndex(Shard& shard) const;

  // Consecutive tokens of one shard.
  struct Run {
    const Shard* shard = nullptr;
    int64_t offset = 0;  // of the first, in the shard
    int64_t count = 0;
  };

  void CheckIndex(const Shard& shard) const;
  const Shard& ShardAt(int64_t position) const;
  // Tokens [begin, begin + count), which must exist, by shard.
  std::vector<Run> RunsOf(int64_t begin, int64_t count) const;
  // Calls take(sequence, pointer) for the sequences of a shard from `first` on, until it returns false. Reads
  // the pointers of `at_once` sequences together.
  void ForEachPointer(const Shard& shard, int64_t first, int64_t at_once,
                      const std::function<bool(int64_t, int64_t)>& take) const;
  // The position in the shard at which a sequence begins; for the number after the last sequence, the number
  // of tokens.
  int64_t StartOf(const Shard& shard, int64_t sequence) const;
  // The first sequence of the shard that begins at or after `position` of the shard.
  int64_t SequenceFrom(const Shard& shard, int64_t position) const;
  // Appends the positions in [begin, end) at which documents begin in a shard without an index.
  void AddDocumentStarts(const Shard& shard, int64_t begin, int64_t end, std::vector<int64_t>& starts) const;
  // Advice about a file that has changed.
  std::string Remedy() const;
  [[noreturn]] void RefuseIndex(const Shard& shard, const std::string& why) const;

  const std::string field_;
  const std::string folder_;
  const std::optional<int64_t> end_of_document_;
  TokenText text_;
  std::shared_ptr<FileReader> files_;
  std::vector<Shard> shards_;
  std::vector<FileIdentity> identities_;
  std::string digest_;
  std::string content_digest_;
};

// The position at which the held-out end begins: DocumentFrom the first of the last HeldOutTokens
// (held_out.h). If nothing is held out, the number of all tokens.
int64_t HeldOutFrom(const StoredTokens& tokens, double fraction, int64_t sequence_length);

}  // namespace tandem::data
