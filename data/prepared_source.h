// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "data/file_reader.h"
#include "data/indexed_file.h"
#include "data/token_files.h"
#include "data/token_source.h"
#include "platform/clock.h"

namespace tandem::data {

// Files of tokens (token_files.h), most of all a folder that `tandem data prepare` made: shards of tokens,
// some with indices, which are read as they are needed and are not kept in memory. Opening it reads the
// headers of all files and compares their sizes with dataset.json. Thread-safe.
class PreparedFolder {
 public:
  // A file of tokens, whatever its name, and what it holds.
  struct FileIdentity {
    uint64_t device = 0;
    uint64_t inode = 0;
    std::string content;  // its tokens' number and type, and a sample of its bytes (content_sample.h)
  };

  // clock outlives this. end_of_document: the last token of each document of files without an index; none: a
  // file is a document. Throws DataError.
  PreparedFolder(const TextPath& text, const platform::Clock& clock,
                 std::optional<int64_t> end_of_document = std::nullopt);

  const TokenText& text() const { return text_; }
  const std::string& folder() const { return folder_; }

  // In the order of text().files.
  const std::vector<FileIdentity>& files() const { return identities_; }

  // As of TokenSource, of all tokens of the folder. Throw DataError.
  void Read(int64_t begin, int64_t count, int64_t* tokens) const;
  void WillRead(int64_t begin, int64_t count) const;
  std::vector<int64_t> DocumentStarts(int64_t begin, int64_t count) const;
  Place Where(int64_t position) const;
  bool has_masks() const;
  std::vector<bool> Counted(int64_t begin, int64_t count) const;

  // Reads the indices of pairs that tandem data prepare did not make once; throws where a sequence does not
  // begin where the one before it ends.
  void CheckIndices() const;

  // The same of a held-out end alone: throws where a sequence from that position on begins before the one
  // before it.
  void CheckStartsFrom(int64_t position) const;

  // The first position from `position` on at which a document begins; the number of all tokens if there is
  // none.
  int64_t DocumentFrom(int64_t position) const;

  // Hexadecimal, of dataset.json's names, sizes and tokenizer; and of the files' contents (content_sample.h).
  const std::string& digest() const { return digest_; }
  const std::string& content_digest() const { return content_digest_; }

 private:
  struct Shard {
    int bin = 0;   // numbers of files of the reader
    int idx = 0;   // -1: there is none
    int mask = 0;  // likewise
    IndexHeader header;
    int64_t first_byte = 0;  // of its first token
    TokenType type = TokenType::kU16;
    int64_t begin = 0;  // position of its first token
    int64_t tokens = 0;
  };

  void Open(const TokenFile& described, Shard& shard) const;
  void OpenIndex(const TokenFile& described, Shard& shard) const;
  void CheckIndex(const Shard& shard) const;
  const Shard& ShardAt(int64_t position) const;
  // The position in the shard at which that sequence begins; its number of tokens behind the last.
  int64_t StartOf(const Shard& shard, int64_t sequence) const;
  // The first sequence of the shard that begins at `position` of the shard or behind it.
  int64_t SequenceFrom(const Shard& shard, int64_t position) const;
  // Adds the documents that begin in [begin, end) of a shard without an index.
  void AddDocumentStarts(const Shard& shard, int64_t begin, int64_t end, std::vector<int64_t>& starts) const;
  // What to do about a file that is not as it was.
  std::string Remedy() const;
  [[noreturn]] void RefuseIndex(const Shard& shard, const std::string& why) const;

  const std::string field_;
  const std::string folder_;
  const std::optional<int64_t> end_of_document_;
  TokenText text_;
  std::unique_ptr<FileReader> files_;
  std::vector<Shard> shards_;
  std::vector<FileIdentity> identities_;
  std::string digest_;
  std::string content_digest_;
};

// Tokens [begin, end) of it. A document begins at `begin`.
class PreparedSource : public TokenSource {
 public:
  PreparedSource(std::shared_ptr<const PreparedFolder> folder, int64_t begin, int64_t end);

  int64_t num_tokens() const override { return end_ - begin_; }
  void Read(int64_t begin, int64_t count, int64_t* tokens) const override;
  void WillRead(int64_t begin, int64_t count) const override;
  std::vector<int64_t> DocumentStarts(int64_t begin, int64_t count) const override;
  Place Where(int64_t position) const override { return folder_->Where(begin_ + position); }
  bool has_masks() const override { return folder_->has_masks(); }
  std::vector<bool> Counted(int64_t begin, int64_t count) const override {
    return folder_->Counted(begin_ + begin, count);
  }
  std::string Description() const override { return folder_->folder(); }
  std::string digest() const override;
  std::string documents_digest() const override;
  std::string content_digest() const override { return folder_->content_digest(); }

 private:
  const std::shared_ptr<const PreparedFolder> folder_;
  const int64_t begin_;
  const int64_t end_;
};

// Where its held-out end begins: the first document from there on where HeldOutTokens (held_out.h) are left.
// The number of its tokens where nothing is held out.
int64_t HeldOutFrom(const PreparedFolder& folder, double fraction, int64_t sequence_length);

}  // namespace tandem::data
