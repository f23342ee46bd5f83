// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "data/corpus.h"
#include "data/token_source.h"

namespace tandem::data {

// One text of a corpus as a source; each byte is a token.
class ByteSource : public TokenSource {
 public:
  ByteSource(std::shared_ptr<const Corpus> corpus, CorpusPart part, Documents documents = {});

  // Throws DataError if the text is for training and has no documents: it is one file and end_of_document is
  // unset, or end_of_document does not occur in it. Held-out text may be a single document.
  void CheckDocuments() const;

  int64_t num_tokens() const override { return corpus_->num_tokens(part_); }
  void Read(int64_t begin, int64_t count, int64_t* tokens) const override;
  void WillRead(int64_t begin, int64_t count) const override { corpus_->WillRead(part_, begin, count); }
  std::vector<int64_t> DocumentStarts(int64_t begin, int64_t count) const override;
  Place Where(int64_t position) const override { return corpus_->Where(part_, position); }
  std::string Description() const override;
  std::string digest() const override {
    return part_.split == Split::kTrain ? corpus_->digest_of_text(part_.text) : corpus_->digest();
  }
  std::string documents_digest() const override;
  std::string content_digest() const override { return corpus_->content_digest(); }

 private:
  const std::shared_ptr<const Corpus> corpus_;
  const CorpusPart part_;
  const Documents documents_;
};

}  // namespace tandem::data
