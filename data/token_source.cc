// SPDX-License-Identifier: Apache-2.0
#include "data/token_source.h"

#include <utility>

#include "platform/check.h"

namespace tandem::data {

TokenSource::TokenSource(std::shared_ptr<const StoredTokens> tokens, int64_t begin, int64_t end,
                         TextIdentity identity)
    : tokens_(std::move(tokens)), begin_(begin), end_(end), identity_(std::move(identity)) {
  TANDEM_CHECK(begin >= 0 && begin <= end && end <= tokens_->text().tokens, "the tokens exist");
}

int64_t TokenSource::Stored(int64_t begin, int64_t count) const {
  TANDEM_CHECK(begin >= 0 && begin <= num_tokens() - count, "the tokens are of this split");
  return begin_ + begin;
}

void TokenSource::Read(int64_t begin, int64_t count, int64_t* tokens) const {
  tokens_->Read(Stored(begin, count), count, tokens);
}

void TokenSource::WillRead(int64_t begin, int64_t count) const {
  tokens_->WillRead(Stored(begin, count), count);
}

std::vector<bool> TokenSource::Counted(int64_t begin, int64_t count) const {
  return tokens_->Counted(Stored(begin, count), count);
}

std::vector<int64_t> TokenSource::DocumentStarts(int64_t begin, int64_t count) const {
  std::vector<int64_t> starts = tokens_->DocumentStarts(Stored(begin, count), count);
  for (int64_t& start : starts) {
    start -= begin_;
  }
  if (begin == 0 && count > 0 && (starts.empty() || starts.front() > 0)) {
    starts.insert(starts.begin(), 0);  // the end of a file without documents
  }
  return starts;
}

}  // namespace tandem::data
