// SPDX-License-Identifier: Apache-2.0
#include "data/loader.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "data/permutation.h"
#include "platform/check.h"
#include "platform/xxh3.h"

namespace tandem::data {

Loader::Loader(std::shared_ptr<const Corpus> corpus, Split split, uint64_t seed, int64_t sequence_length,
               std::optional<Documents> documents)
    : corpus_(std::move(corpus)),
      split_(split),
      seed_(seed),
      window_tokens_(sequence_length + 1),
      documents_(documents) {
  TANDEM_CHECK(sequence_length >= 1, "a sequence has a token");
  const int64_t tokens = corpus_->num_tokens(split);
  num_windows_ = tokens / window_tokens_;
  const std::vector<std::string> files = corpus_->files(split);
  const std::string in_files = files.size() == 1 ? files[0] : absl::StrCat("its ", files.size(), " files");
  if (num_windows_ == 0) {
    const bool train = split == Split::kTrain;
    throw DataError(absl::StrCat(
        train ? "data.train" : "data.validation", ": the ", train ? "training" : "held-out", " part has ",
        tokens, tokens == 1 ? " token in " : " tokens in ", in_files, ", fewer than one window of ",
        window_tokens_, " (sequence_length + 1); use more text or shorter sequences",
        train ? "" : ", a larger data.validation_fraction, or training.validate_every_steps: 0"));
  }
  // Held-out text may well be one document.
  if (!documents.has_value() || split != Split::kTrain) {
    return;
  }
  const std::optional<int64_t>& end = documents->end_of_document;
  if (!end.has_value() && files.size() == 1) {
    throw DataError(absl::StrCat("data.documents: packed finds no documents in ", in_files,
                                 ", the only training file, since a file is a document; name the token that "
                                 "ends one with data.end_of_document, or give a file for each document"));
  }
  if (end.has_value() && !corpus_->Has(split, *end)) {
    throw DataError(absl::StrCat(
        "data.end_of_document: ", *end, " does not occur in the training text (", in_files,
        "); give the number of the byte that ends a document (10 for a newline)",
        files.size() == 1 ? ", or use documents: stream" : ", or omit the key: a file is then a document"));
  }
}

std::string Loader::digest() const {
  if (!documents_.has_value()) {
    return corpus_->digest();
  }
  return platform::Xxh3Of(absl::StrCat(corpus_->digest(), " documents",
                                       documents_->end_of_document.has_value()
                                           ? absl::StrCat(" end with ", *documents_->end_of_document)
                                           : ""));
}

std::string Loader::content_digest() const {
  return platform::Xxh3Of(absl::StrCat(digest(), " contents ", corpus_->content_digest()));
}

int64_t Loader::Window(int64_t sample) const {
  const int64_t place = sample % num_windows_;
  if (split_ == Split::kValidation) {
    return place;
  }
  const int64_t epoch = sample / num_windows_;
  return Permutation(num_windows_, MixKeys(seed_, static_cast<uint64_t>(epoch)))(place);
}

void Loader::Fill(int64_t step, int64_t microbatch, int64_t num_microbatches, int64_t sequences,
                  int64_t* rows) const {
  const bool train = split_ == Split::kTrain;
  TANDEM_CHECK((step >= 1 || !train) && microbatch >= 0 && microbatch < num_microbatches,
               "the microbatch is of the step");
  const int64_t steps_before = train ? step - 1 : 0;
  const int64_t first = (steps_before * num_microbatches + microbatch) * sequences;
  for (int64_t i = 0; i < sequences; ++i) {
    const int64_t begin = Window(first + i) * window_tokens_;
    int64_t* const row = rows + i * row_elements();
    corpus_->Read(split_, begin, window_tokens_, row);
    if (documents_.has_value()) {
      FillStarts(begin, row, row + window_tokens_);
    }
  }
}

void Loader::FillStarts(int64_t begin, const int64_t* tokens, int64_t* starts) const {
  const std::vector<int64_t> files = corpus_->FileStarts(split_, begin, window_tokens_);
  auto file = files.begin();
  int64_t start = 0;
  for (int64_t i = 0; i < window_tokens_ - 1; ++i) {
    if (file != files.end() && *file == begin + i) {
      start = i;
      ++file;
    } else if (i > 0 && tokens[i - 1] == documents_->end_of_document) {
      start = i;
    }
    starts[i] = start;
  }
}

}  // namespace tandem::data
