// SPDX-License-Identifier: Apache-2.0
#include "data/byte_source.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "platform/xxh3.h"

namespace tandem::data {

ByteSource::ByteSource(std::shared_ptr<const Corpus> corpus, CorpusPart part, Documents documents)
    : corpus_(std::move(corpus)), part_(part), documents_(documents) {}

void ByteSource::CheckDocuments() const {
  if (part_.split != Split::kTrain) {
    return;
  }
  const std::optional<int64_t>& end = documents_.end_of_document;
  const bool one_file = corpus_->files(part_).size() == 1;
  if (!end.has_value() && one_file) {
    throw DataError(absl::StrCat("data.documents: packed finds no documents in ", Description(),
                                 ", the only training file, since a file is a document; name the token that "
                                 "ends one with data.end_of_document, or give a file for each document"));
  }
  if (end.has_value() && !corpus_->Has(part_, *end)) {
    throw DataError(absl::StrCat(
        "data.end_of_document: ", *end, " does not occur in the training text (", Description(),
        "); give the number of the byte that ends a document (10 for a newline)",
        one_file ? ", or use documents: stream" : ", or omit the key: a file is then a document"));
  }
}

void ByteSource::Read(int64_t begin, int64_t count, int64_t* tokens) const {
  corpus_->Read(part_, begin, count, tokens);
}

std::vector<int64_t> ByteSource::DocumentStarts(int64_t begin, int64_t count) const {
  const std::vector<int64_t> files = corpus_->FileStarts(part_, begin, count);
  if (!documents_.end_of_document.has_value()) {
    return files;
  }
  // The token before the first of them says whether that one begins a document.
  const int64_t before = begin > 0 ? 1 : 0;
  std::vector<int64_t> tokens(count + before);
  corpus_->Read(part_, begin - before, count + before, tokens.data());
  std::vector<int64_t> starts;
  auto file = files.begin();
  for (int64_t i = 0; i < count; ++i) {
    const bool starts_file = file != files.end() && *file == begin + i;
    if (starts_file) {
      ++file;
    }
    if (starts_file || (i + before > 0 && tokens[i + before - 1] == *documents_.end_of_document)) {
      starts.push_back(begin + i);
    }
  }
  return starts;
}

std::string ByteSource::Description() const {
  const std::vector<std::string> files = corpus_->files(part_);
  return files.size() == 1 ? files[0] : absl::StrCat("its ", files.size(), " files");
}

std::string ByteSource::documents_digest() const {
  return platform::Xxh3Of(absl::StrCat(
      digest(), " documents",
      documents_.end_of_document.has_value() ? absl::StrCat(" end with ", *documents_.end_of_document) : ""));
}

}  // namespace tandem::data
