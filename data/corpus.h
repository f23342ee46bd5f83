// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "data/token_source.h"

namespace tandem::data {

// Where the texts are: each a file, a folder (every regular file below it), or a glob.
struct CorpusSource {
  std::vector<TextPath> train;       // one or more
  std::vector<TextPath> validation;  // none: a part of the files of each training text
  double validation_fraction = 0;    // of their bytes, where `validation` is empty
  bool validates = true;             // on what is held out
};

// One text of a split, in the order of CorpusSource; of the held-out ends there are as many as training
// texts.
struct CorpusPart {
  CorpusPart(Split split, size_t text = 0) : split(split), text(text) {}  // NOLINT: a split is its first text
  Split split;
  size_t text;
};

// The files of a job, mapped, as sequences of tokens, one of each text. A token is a byte; the files of a
// text follow each other, sorted by path, with nothing between them. Empty files are left out.
//
// A file that is found under several names (links) of a text counts once, under the first, so that nothing is
// both trained on and held out; one that is a training and a validation file is refused.
//
// Without `validation`, whole files are held out: about validation_fraction of the bytes, at least one file
// where there are two and the fraction is not 0. The choice depends only on the files' names below the root
// (the folder, or what precedes the first wildcard) and sizes, so it is the same on every rank and for a copy
// elsewhere. Of a single file the end is held out.
//
// To construct one opens every file and reads its sample (content_sample.h), several files at a time
// (kMostConcurrentFiles): four reads at most for each, which on a network file system may take 5 ms a piece
// and 25 s for 10,000 files.
//
// Hidden files are skipped (platform/file_list.h). A training file with the bytes of a file that is held out
// is left out, so that a copy puts no held-out text into the training text; copies of it within one split
// stay.
//
// Immutable, thread-safe. The files must stay as they are while the corpus lives; replacing one by a rename
// is fine, the old content is what is read.
class Corpus {
 public:
  // Throws DataError.
  explicit Corpus(const CorpusSource& source);
  ~Corpus();
  Corpus(const Corpus&) = delete;
  Corpus& operator=(const Corpus&) = delete;

  size_t num_texts(Split split) const { return (split == Split::kTrain ? train_ : validation_).size(); }

  int64_t num_tokens(CorpusPart of) const { return part(of).num_tokens; }

  // Names below the root, in the order of their tokens.
  std::vector<std::string> files(CorpusPart of) const;

  // Tokens [begin, begin + count). Requires them to exist. Throws DataError where one of their files has been
  // written to since; cut short in that very moment, reading is fatal (SIGBUS).
  void Read(CorpusPart of, int64_t begin, int64_t count, int64_t* tokens) const;

  // Asks the disk for what Read of them will read, and does not wait.
  void WillRead(CorpusPart of, int64_t begin, int64_t count) const;

  // Whether the token occurs. Reads up to its first place, all text where it has none. Throws as Read does.
  bool Has(CorpusPart of, int64_t token) const;

  // The positions among those where a file begins, or with the split the held-out end of one: ascending.
  std::vector<int64_t> FileStarts(CorpusPart of, int64_t begin, int64_t count) const;

  // What is trained on, what is held out and what was left out, in one line for the user.
  std::string Summary() const;

  // Where the byte lies that is the token at that position, which must exist.
  Place Where(CorpusPart of, int64_t position) const;

  // Hexadecimal, of names, sizes and which are held out, of all texts.
  const std::string& digest() const { return digest_; }

  // Of one text to train on and what is held out for it: of the job of that text alone, if no copies are left
  // out.
  const std::string& digest_of_text(size_t text) const { return text_digests_.at(text); }

  // Hexadecimal, of what the files contain, as far as content_sample.h reads it.
  const std::string& content_digest() const { return content_digest_; }

 private:
  class Mapping;  // of one file
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

  // The files of a text that are not empty, in order, each once.
  Files Open(const TextPath& text);
  // Throws where a file is in both.
  static void CheckApart(const Files& train, const TextPath& of, const Files& validation);
  // Throws where a file is in two of them that are not the same.
  static void CheckShared(const std::vector<Files>& train);
  void HoldOut(const Files& files, double fraction);
  void LeaveOutCopies();
  // names_validation: it is held out for all texts; otherwise each has its own.
  void ComputeDigests(bool names_validation);

  // The file of a token that exists.
  static std::vector<Span>::const_iterator SpanAt(const Part& part, int64_t token);

  const Part& part(CorpusPart of) const {
    return (of.split == Split::kTrain ? train_ : validation_).at(of.text);
  }

  std::vector<Part> train_;
  std::vector<Part> validation_;
  int64_t num_skipped_ = 0;  // hidden files and folders
  int64_t num_copies_ = 0;   // training files that were left out
  std::string digest_;
  std::vector<std::string> text_digests_;  // of train_
  std::string content_digest_;
};

}  // namespace tandem::data
