// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "data/file_reader.h"
#include "data/token_source.h"
#include "platform/clock.h"

namespace tandem::data {

// Identifies one text of a split by its index in TextOptions. If the held-out parts of training texts are
// validated on, text i of the validation split is that of training text i.
struct CorpusPart {
  CorpusPart(Split split, size_t text = 0) : split(split), text(text) {}  // NOLINT: converts a split
  Split split;
  size_t text;
};

// The texts of a job as sequences of tokens, one for each text. A token is a byte. The files of a text follow
// each other without anything between them, sorted by path. Empty files are left out.
//
// A file that a text contains under several names (links) counts once, under the first, so that nothing is
// both trained on and held out. A file that is both a training and a validation file is an error.
//
// If TextOptions::validation is empty, whole files of each training text are held out: about
// validation_fraction of its bytes, and at least one file if it has two and the fraction is not 0. The choice
// depends only on the files' sizes and their names below the root (the folder, or the path before the first
// wildcard), so every rank makes the same choice, and so does a copy in another place. If a text is a single
// file, the end of the file is held out.
//
// The constructor opens every file and reads its sample (content_sample.h), kMostConcurrentFiles at a time.
// That is at most five reads for each file: if each, and the opening, takes 5 ms, as on a network file
// system, 10,000 files take about 40 s.
//
// Hidden files are skipped (platform/file_list.h). A training file with the same bytes as a held-out file is
// left out, so that a copy does not bring held-out text into the training text; copies within one split stay.
//
// Immutable, thread-safe. The files must stay as they are while the corpus or its tokens live.
class Corpus {
 public:
  // Ignores options.documents and options.sequence_length. `clock` must outlive the corpus and its tokens.
  // Throws DataError.
  Corpus(const TextOptions& options, const platform::Clock& clock);

  size_t num_texts(Split split) const { return (split == Split::kTrain ? train_ : validation_).size(); }

  // Names below the root, in the order of their tokens.
  std::vector<std::string> files(CorpusPart of) const;

  // The text as a source of tokens. Its identity has digests of the names, sizes and splits of files
  // (`digest`: of a training text, of its files and what is held out; of a validation text, of the files of
  // all texts) and of their contents (`content_digest`: of all texts).
  std::shared_ptr<const TokenSource> Open(CorpusPart of, const Documents& documents = {}) const;

  // One line for the user: what is trained on, what is held out and what was left out.
  std::string Summary() const;

 private:
  // One file, as it was when it was opened.
  struct File {
    int number = 0;    // in reader_
    std::string name;  // below the root
    std::string content_sample;
    int64_t size = 0;
    std::pair<uint64_t, uint64_t> inode;
  };
  using Files = std::vector<File>;

  // The part of a file that belongs to a split.
  struct Span {
    File file;
    int64_t begin = 0;
    int64_t size = 0;
  };

  struct Part {
    std::vector<Span> spans;
    int64_t num_tokens = 0;

    void Add(const File& file, int64_t begin, int64_t size);
  };

  static Part WholeFiles(const Files& files);
  File OpenFile(const TextPath& text, const std::string& path, std::string name);
  bool HaveSameBytes(const File& one, const File& two) const;  // if they have the same size
  // Opens the files of a text that are not empty, in order, each once.
  Files OpenFiles(const TextPath& text);
  // Throws DataError if a file is in both.
  void CheckApart(const Files& train, const TextPath& of, const Files& validation) const;
  // Throws DataError if two texts share a file, but not all of their files.
  void CheckShared(const std::vector<Files>& train) const;
  void HoldOut(const Files& files, double fraction);
  void LeaveOutCopies();
  // `names_validation`: the job names validation texts. Otherwise each training text has a held-out part of
  // its own.
  void ComputeDigests(bool names_validation);

  const Part& part(CorpusPart of) const {
    return (of.split == Split::kTrain ? train_ : validation_).at(of.text);
  }

  const std::shared_ptr<FileReader> reader_;  // of all texts; shared with their tokens
  std::vector<Part> train_;
  std::vector<Part> validation_;
  int64_t num_skipped_ = 0;  // hidden files and folders
  int64_t num_copies_ = 0;   // training files that were left out
  std::string digest_;
  std::vector<std::string> text_digests_;  // one for each text of train_
  std::string content_digest_;
};

}  // namespace tandem::data
