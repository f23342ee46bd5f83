// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "data/token_source.h"

namespace tandem::data {

// One text of a split. Texts have the order of TextOptions; text i of the validation split may be the
// held-out part of training text i.
struct CorpusPart {
  CorpusPart(Split split, size_t text = 0) : split(split), text(text) {}  // NOLINT: converts a split
  Split split;
  size_t text;
};

// The texts of a job as sequences of tokens, one for each text. A token is a byte. The files are mapped into
// memory. The files of a text follow each other without anything between them, sorted by path. Empty files
// are left out.
//
// A file that a text contains under several names (links) counts once, under the first, so that nothing is
// both trained on and held out. A file that is both a training and a validation file is an error.
//
// If `validation` is empty, whole files are held out: about validation_fraction of the bytes, and at least
// one file if there are two and the fraction is not 0. The choice depends only on the files' sizes and their
// names below the root (the folder, or the path before the first wildcard), so every rank makes the same
// choice, and so does a copy in another place. If a text is a single file, its end is held out.
//
// The constructor opens every file and reads its sample (content_sample.h), kMostConcurrentFiles at a time.
// That is at most four reads for each file: if a read takes 5 ms, as on a network file system, 10,000 files
// take 25 s.
//
// Hidden files are skipped (platform/file_list.h). A training file with the same bytes as a held-out file is
// left out, so that a copy does not bring held-out text into the training text; copies within one split stay.
//
// Immutable, thread-safe. No file may be written to while the corpus lives. Another file may replace it by a
// rename; the corpus continues to read the old one.
class Corpus {
 public:
  // Ignores options.documents and options.sequence_length. Throws DataError.
  explicit Corpus(const TextOptions& options);
  ~Corpus();
  Corpus(const Corpus&) = delete;
  Corpus& operator=(const Corpus&) = delete;

  size_t num_texts(Split split) const { return (split == Split::kTrain ? train_ : validation_).size(); }

  int64_t num_tokens(CorpusPart of) const { return part(of).num_tokens; }

  // Names below the root, in the order of their tokens.
  std::vector<std::string> files(CorpusPart of) const;

  // Copies tokens [begin, begin + count), which must exist, to `tokens`. Throws DataError if one of their
  // files has been written to since the corpus was opened. If a file shrinks during the read, the process
  // gets SIGBUS.
  void Read(CorpusPart of, int64_t begin, int64_t count, int64_t* tokens) const;

  // Starts reading from the disk what Read of these tokens will need, and does not wait.
  void WillRead(CorpusPart of, int64_t begin, int64_t count) const;

  // Whether the token occurs in the text. Reads up to its first occurrence. Throws as Read does.
  bool Has(CorpusPart of, int64_t token) const;

  // The positions in [begin, begin + count), ascending, at which a file, or the held-out end of a file,
  // begins.
  std::vector<int64_t> FileStarts(CorpusPart of, int64_t begin, int64_t count) const;

  // One line for the user: what is trained on, what is held out and what was left out.
  std::string Summary() const;

  // The file and the byte in it of the token at `position`, which must exist.
  Place Where(CorpusPart of, int64_t position) const;

  // A digest of the names, sizes and split of all texts' files; hexadecimal.
  const std::string& digest() const { return digest_; }

  // The digest of one training text and its held-out part. It equals digest() of a job with that text alone,
  // if no copies are left out.
  const std::string& digest_of_text(size_t text) const { return text_digests_.at(text); }

  // A digest of what the files contain, as far as content_sample.h reads them; hexadecimal.
  const std::string& content_digest() const { return content_digest_; }

 private:
  class Mapping;  // one mapped file
  using Files = std::vector<std::shared_ptr<const Mapping>>;

  struct Span {
    std::shared_ptr<const Mapping> mapping;
    std::string name;
    int64_t file_begin = 0;  // first byte of the file that belongs to the split
    int64_t begin = 0;       // first token in the split
    int64_t size = 0;
  };

  struct Part {
    std::vector<Span> spans;
    int64_t num_tokens = 0;

    void Add(std::shared_ptr<const Mapping> mapping, int64_t file_begin, int64_t size);
  };

  static Part WholeFiles(const Files& files);
  // Opens the files of a text that are not empty, in order, each once.
  Files Open(const TextPath& text);
  // Throws DataError if a file is in both.
  static void CheckApart(const Files& train, const TextPath& of, const Files& validation);
  // Throws DataError if two texts share a file, but not all of their files.
  static void CheckShared(const std::vector<Files>& train);
  void HoldOut(const Files& files, double fraction);
  void LeaveOutCopies();
  // `names_validation`: the job names validation texts. Otherwise each training text has a held-out part of
  // its own.
  void ComputeDigests(bool names_validation);

  // The file that contains the token, which must exist.
  static std::vector<Span>::const_iterator SpanAt(const Part& part, int64_t token);

  // Calls take(mapping, first byte, bytes) for each file of tokens [begin, begin + count), which must exist.
  void ForEachFile(CorpusPart of, int64_t begin, int64_t count,
                   const std::function<void(const Mapping&, int64_t, int64_t)>& take) const;

  const Part& part(CorpusPart of) const {
    return (of.split == Split::kTrain ? train_ : validation_).at(of.text);
  }

  std::vector<Part> train_;
  std::vector<Part> validation_;
  int64_t num_skipped_ = 0;  // hidden files and folders
  int64_t num_copies_ = 0;   // training files that were left out
  std::string digest_;
  std::vector<std::string> text_digests_;  // one for each text of train_
  std::string content_digest_;
};

}  // namespace tandem::data
